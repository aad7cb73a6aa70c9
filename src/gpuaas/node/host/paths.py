"""Where the agent keeps things on its machine. Every root can be moved, so that several agents can live on one host."""

import re
from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import PATTERN
from gpuaas.node.host.kernel import asking

_ID = re.compile(PATTERN)
RUN = Path("/run/gpuaas")
ETC = Path("/etc/gpuaas")


@dataclass(frozen=True)
class Paths:
    state: Path = Path("/var/lib/gpuaas")  # survives a reboot
    run: Path = RUN  # need not
    image_store: Path | None = None  # images may be shared by several agents; below `state` unless told
    etc: Path | None = None  # where operators look; ETC for the agent that has RUN, `state` for any other

    def __post_init__(self) -> None:
        # Mounting follows no links. The way to the roots is the operator's: /var/run may well be one.
        for name in ("state", "run", "image_store", "etc"):
            path = getattr(self, name)
            object.__setattr__(self, name, path.resolve() if path else None)
        if self.etc is None:
            object.__setattr__(self, "etc", ETC.resolve() if self.run == RUN.resolve() else self.state)

    @property
    def images(self) -> Path:
        return self.image_store or self.state / "images"

    @property
    def layers(self) -> Path:
        return self.state / "allocations"

    @property
    def runtimes(self) -> Path:
        """Images of runtimes, by digest."""
        return self.state / "runtime-images"

    @property
    def descriptors(self) -> Path:
        """What runtimes each allocation has."""
        return (self.etc or self.state) / "runtime/allocations"

    @property
    def descriptors_before(self) -> Path:
        """Where every agent had them once."""
        return self.state / "runtime/allocations"

    @property
    def pins(self) -> Path:
        return self.run / "namespaces"

    @property
    def networks(self) -> Path:
        return self.run / "networks"

    def layer(self, id: str) -> Path:
        """What an allocation wrote, and its disk image."""
        return self.layers / _checked(id)

    def pin(self, id: str) -> Path:
        """Holds the allocation's mount namespace."""
        return self.pins / _checked(id)

    def network_pin(self, id: str, kind: str) -> Path:
        """Holds the allocation's user or network namespace."""
        return self.networks / f"{_checked(id)}.{kind}"

    def live(self, id: str) -> Path:
        """Where the allocation's mounts are, seen from inside its mount namespace; empty directories from outside."""
        return self.run / "allocations" / _checked(id)

    def make_live(self, id: str) -> Path:
        """Makes it. Everybody may pass, because the container's root, a nobody here, must; nobody may look."""
        live = self.live(id)
        for directory in (self.run, live.parent, live):
            with asking("make the directory", directory):
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o711)
        return live


def _checked(id: str) -> str:
    # Becomes a path, as root: looked at here too, wherever it came from.
    if _ID.fullmatch(id) is None:
        raise HostError("find", repr(id), "not the id of an allocation", transient=False)
    return id
