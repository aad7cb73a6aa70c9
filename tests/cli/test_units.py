"""Durations and sizes: each means what it says, and nothing else is one."""

import click
import pytest

from cli.conftest import Gpuaas
from gpuaas.cli import units
from sdk.playback import Playback


@pytest.mark.acceptance("D04")
@pytest.mark.parametrize(
    ("text", "mib"),
    [("2GiB", 2048), ("2 gib", 2048), ("512MiB", 512), ("512", 512), ("1TiB", 2**20), ("2GB", 1908), ("8192MB", 7813)],
)
def test_a_size_means_what_it_says(text: str, mib: int) -> None:
    assert units.memory(text) == mib


@pytest.mark.parametrize(("text", "unit"), [("4GB", 10**9), ("8192MB", 10**6), ("3TB", 10**12), ("4GiB", 2**30)])
def test_nobody_gets_less_than_they_ask_for_nor_a_mib_more(text: str, unit: int) -> None:
    asked = int(text.rstrip("GMTiB")) * unit
    assert 0 <= units.memory(text) * 2**20 - asked < 2**20


@pytest.mark.acceptance("D04")
@pytest.mark.parametrize("text", ["2GBB", "GB", "", "-2GB", "2.5GB", "2 G B", "50%%", "two", "1e3", "\u0663GB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        units.memory(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1w", 604800)])
def test_a_duration_means_what_it_says(text: str, seconds: int) -> None:
    assert units.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2hh", "-1h", "1.5h", "soon"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        units.duration(text)


GOOD = {"--gpus": "1", "--cpus": "8", "--memory": "2GB"}


@pytest.mark.acceptance("D04")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--memory", "2GBB"),
        ("--memory", "two"),
        ("--gpus", "two"),
        ("--gpus", "-1"),
        ("--cpus", "50%%"),
        ("--cpus", "8x"),
    ],
)
def test_what_means_nothing_is_a_usage_error_and_nothing_is_sent(
    gpuaas: Gpuaas, server: Playback, option: str, value: str
) -> None:
    wanted = {**GOOD, option: value}
    said = gpuaas("admin", "offer", "create", "small", *(part for pair in wanted.items() for part in pair))
    assert (said.code, said.out) == (2, "")
    assert value in said.err
    assert server.asked == []


@pytest.mark.acceptance("D04")
def test_what_is_asked_for_is_sent(gpuaas: Gpuaas, server: Playback) -> None:
    gpuaas("admin", "offer", "create", "small", *(part for pair in GOOD.items() for part in pair))
    (asked,) = server.to("POST", "/api/v1/offers")
    assert (asked.json["memory_mib"], asked.json["gpu_count"], asked.json["cpus"]) == (1908, 1, 8)
