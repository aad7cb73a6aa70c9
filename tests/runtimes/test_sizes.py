import pytest

from gpuaas.runtimes.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [("512MB", 512 * 10**6), ("2GB", 2 * 10**9), ("4GiB", 4 * 2**30), ("1.5 GB", 1500 * 10**6), ("0B", 0)],
)
def test_a_size_means_what_it_says(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "2", "GB", "2GBB", "-1GB", "2 GB MB", "1e3GB", "٣GB", "2G", "1.GB"])
def test_what_is_no_size(text: str) -> None:
    assert parse_bytes(text) is None
