"""`gpuaas offer`: what can be launched."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import OfferView


@click.group(cls=Group)
def offer() -> None:
    """What can be launched."""


@offer.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List offers."""
    found = list(session.client().offers.list())
    if session.json:
        return output.json_page(found)
    columns = ("OFFER", "NAME", "GPUS", "CPUS", "MEMORY", "ISOLATION", "PRICE/H")
    return output.table(columns, [_row(item) for item in found], empty="Nothing is on offer yet.")


def _row(item: "OfferView") -> tuple[object, ...]:
    gpus = f"{item.gpu_count}x {item.gpu_model}".strip() if item.gpu_count else "none"
    price = f"{item.price_micros_per_hour / 1_000_000:.2f}" if item.price_micros_per_hour else "free"
    return item.slug, item.name, gpus, item.cpus, memory(item.memory_mib), item.isolation, price


def memory(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib >= 1024 and mib % 1024 == 0 else f"{mib} MiB"
