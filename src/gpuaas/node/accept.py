"""Whether a spec that arrived is news, and what the journal then remembers. Pure."""

from msgspec.structs import replace

from gpuaas.node.host.interface import boot_config, differ_in_runtimes
from gpuaas.node.record import Intent, Record, Verdict
from gpuaas.wire.node import AllocationBody, Failure, Spec


def accept(record: Record | None, spec: Spec, lineage: str, refused: Failure | None) -> Record | None:
    """The record that follows, or None when the spec is old news.

    Within a lineage only a larger (incarnation, generation) counts. The first word of another lineage counts whatever
    its numbers are: that server knows what this node holds, and a restored one counts from where its backup was.
    """
    version = (spec.incarnation, spec.generation)
    if record is not None and record.lineage == lineage and version <= record.version:
        return None
    if record is None or (record.gone and spec.incarnation > record.version[0]):
        record = Record(spec.id, lineage)
    if record.gone:
        # Deleted is deleted. The numbers are taken over, because the server waits for an answer about them.
        return replace(record, lineage=lineage, spec=replace(spec, body=None), failed=None, told="")
    if refused is not None:
        # What runs keeps running as it is.
        verdict = Verdict(spec.incarnation, spec.generation, refused)
        rest = {"applied": None, "spec": None} if version < _spec_version(record) else {}
        return replace(record, lineage=lineage, failed=verdict, **rest)
    if record.lineage != lineage and record.spec is not None and _same(record.spec, spec):
        return replace(record, lineage=lineage, spec=spec)
    applied = record.applied
    if record.lineage != lineage and applied is not None and applied.version >= version:
        applied = None  # it was another server's generation of that number
    elif applied is not None and record.lineage == lineage and _stays_good(record, spec):
        applied = replace(applied, generation=spec.generation)
    return replace(
        record,
        lineage=lineage,
        spec=spec,
        failed=None,
        applied=applied,
        intent=_grown(record.intent, spec),
        down=record.down or _is_restart(record, spec.body),
    )


def _spec_version(record: Record) -> tuple[int, int]:
    return (record.spec.incarnation, record.spec.generation) if record.spec else (0, 0)


def _stays_good(record: Record, spec: Spec) -> bool:
    """Known on arrival, and so in the same write: whoever switches a runtime waits for every write of the journal."""
    if not record.was_good or record.down or record.spec is None or spec.incarnation != record.version[0]:
        return False
    before, after = record.spec.body, spec.body
    return before is not None and after is not None and differ_in_runtimes(before, after)


def _same(one: Spec, other: Spec) -> bool:
    return (one.incarnation, one.generation, one.body) == (other.incarnation, other.generation, other.body)


def _grown(intent: Intent | None, spec: Spec) -> Intent | None:
    body = spec.body
    if body is None:
        return Intent(spec.generation, 0, [], sorted(set(spec.gpus)), 0, 0) if spec.gpus else intent
    slots = {slot.id for slot in body.slots} | set(intent.slots if intent else [])
    gpus = {gpu for slot in body.slots for gpu in slot.gpus} | set(intent.gpus if intent else [])
    restarts = max(body.restarts, intent.restarts if intent else 0)
    return Intent(spec.generation, restarts, sorted(slots), sorted(gpus), body.ssh_port, body.uid_base)


def _is_restart(record: Record, body: AllocationBody | None) -> bool:
    """Whether the machine will be stopped on purpose, so that its end is no death."""
    if body is None or record.applied is None:
        return False
    other = record.applied.config != boot_config(body)
    return body.stopped or record.applied.restarts < body.restarts or other
