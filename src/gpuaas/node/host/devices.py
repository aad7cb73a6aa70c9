"""Which GPUs an allocation holds: given out clean, reset for each start that is asked for, scrubbed when given back.

<state>/devices/<id>    what it holds
<state>/gpus/           marks: a GPU that a tenant could have written to is dirty until its scrub has succeeded
"""

import threading
from contextlib import suppress

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.gpus.cdi_edits import OciEdits, oci, resolve
from gpuaas.node.host.gpus.gpu import Gpu, label
from gpuaas.node.host.gpus.marks import Marks
from gpuaas.node.host.gpus.scrub import MAX_EVIDENCE, scrub
from gpuaas.node.host.gpus.source import AnyGpus
from gpuaas.node.host.paths import Paths
from gpuaas.wire.node import AllocationBody, Scrub


class Held(Struct, frozen=True):
    gpus: list[str]
    restarts: int  # the counter that they were last reset for
    boot_id: str
    cards: list[str] = []  # the GPUs that MIG instances among them are parts of


class Devices:
    def __init__(self, paths: Paths, gpus: AnyGpus, boot_id: str) -> None:
        self._gpus = gpus
        self._boot_id = boot_id
        self._records = FileDisk(paths.state / "devices")
        self._marks = Marks(paths.state / "gpus")
        self._giving = threading.Lock()

    def ready(self, id: str, body: AllocationBody) -> bool:
        """Whether there is nothing to be done: then a running container is no obstacle."""
        try:
            held = self.held(id)
        except HostError:
            return False
        wanted = sorted(gpu for slot in body.slots for gpu in slot.gpus)
        if held is None or sorted(held.gpus) != wanted or held.restarts < body.restarts:
            return False
        known = self._known()
        return all(gpu in known for gpu in wanted)

    def ensure(self, id: str, body: AllocationBody) -> None:
        wanted = [gpu for slot in body.slots for gpu in slot.gpus]
        known = self._known()
        for name in wanted:
            if name not in known:
                raise HostError("devices_ensure", id, f"this host has no GPU {name}", transient=False)
        try:
            before, again = self.held(id), False
        except HostError:
            before, again = None, True  # damaged: whatever they went through, it is done once more
        # The first user gets them as the last scrub left them.
        again |= before is not None and (before.restarts < body.restarts or before.boot_id != self._boot_id)
        cards = sorted({label(known[name].card) for name in wanted if known[name].card})
        given = Held(wanted, body.restarts, self._boot_id, cards)
        with self._giving:
            for name in wanted:
                self._free(id, name, _card(known[name]), before)
            # The marks first: whoever dies in between leaves a GPU that nobody gets before it was scrubbed.
            for name in wanted:
                self._marks.dirty(name, _why(id), _card(known[name]))
            not_yet_reset = Held(wanted, before.restarts if before else -1, before.boot_id if before else "", cards)
            self._write(id, not_yet_reset if again else given)
        if again:
            for name in wanted:
                self._gpus.reset(known[name])
            self._write(id, given)

    def remove(self, id: str, gpus: list[str]) -> list[Scrub]:
        try:
            held = self.held(id)
        except HostError:
            held = None  # damaged: then there is nothing to learn from it
        known = self._known()
        scrubs = [self._scrub(id, name, known) for name in sorted({*gpus, *(held.gpus if held else [])})]
        self._records.remove(id)
        return scrubs

    def held(self, id: str) -> Held | None:
        data = self._records.read(id)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Held)
        except msgspec.MsgspecError as error:
            raise HostError("read", f"the devices of {id}", f"the record is damaged: {error}") from error

    def ids(self) -> set[str]:
        return set(self._records.names())

    def gpus(self, id: str) -> list[Gpu]:
        """In the order of its slots."""
        held, known = self.held(id), self._known()
        return [known[name] for name in held.gpus if name in known] if held else []

    def edits(self, id: str) -> OciEdits:
        """What its container gets, from the devices as they are now."""
        held = self.held(id)
        gpus = self.gpus(id)
        if held is None or len(gpus) != len(held.gpus):
            raise HostError("devices", id, "one of its GPUs does not answer")
        return oci(resolve(self._gpus.library(), gpus), user_namespace=True)

    def _known(self) -> dict[str, Gpu]:
        return {label(gpu.uuid): gpu for gpu in self._gpus.found().gpus}

    def _free(self, id: str, gpu: str, card: str, before: Held | None) -> None:
        holder = self._holder(id, gpu, card)
        if holder is not None:
            raise HostError("devices_ensure", id, f"GPU {gpu} is in use by {holder}")
        dirty = self._marks.why(gpu)
        if dirty and dirty != _why(id) and not (before and gpu in before.gpus):
            raise HostError("devices_ensure", id, f"GPU {gpu} was not scrubbed: {dirty}")
        if left := self._left_in_another_shape(gpu, card):
            raise HostError("devices_ensure", id, f"GPU {gpu} {left}")

    def _left_in_another_shape(self, gpu: str, card: str) -> str:
        """Cut and whole it has the same memory: what was left in one shape is there in the other."""
        others = self._marks.parts(gpu) | ({card: why} if card and (why := self._marks.why(card)) else {})
        return "; ".join(f"was {other}, which was not scrubbed: {why}" for other, why in others.items())

    def _holder(self, id: str, gpu: str, card: str = "") -> str | None:
        """Who has it, or the GPU that it is a part of, or a part of it."""
        for other in self.ids() - {id}:
            with suppress(HostError):  # its own removal reports a damaged record
                held = self.held(other)
                if held is not None and (gpu in held.gpus or gpu in held.cards or (card and card in held.gpus)):
                    return other
        return None

    def _scrub(self, id: str, name: str, known: dict[str, Gpu]) -> Scrub:
        gpu = known.get(name)
        holder = self._holder(id, name, _card(gpu) if gpu else "")
        if holder is not None:
            return Scrub(name, clean=False, evidence=f"in use by {holder}")
        if gpu is None:
            return Scrub(name, clean=False, evidence="the GPU does not answer")
        done = scrub(name, self._marks, self._gpus.wipe(gpu), _card(gpu))
        left = self._left_in_another_shape(name, _card(gpu))
        return Scrub(done.gpu, clean=False, evidence=f"it {left}"[:MAX_EVIDENCE]) if done.clean and left else done

    def _write(self, id: str, held: Held) -> None:
        self._records.write(id, msgspec.json.encode(held))


def _card(gpu: Gpu) -> str:
    return label(gpu.card) if gpu.card else ""


def _why(id: str) -> str:
    return f"given to {id}"
