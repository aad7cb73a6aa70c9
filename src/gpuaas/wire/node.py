"""The node link: every message between server and agent, one WebSocket text frame each, JSON.

    agent                                   server
    Hello(store_id, revision, epoch)   ->
                                       <-   Challenge(nonce)            first frame, before Hello
                                       <-   Welcome(store_id, epoch, synced)
    Holdings(objects, final)           ->   only when not synced: what this node really has
    Report(conditions, facts, ...)     ->
                                       <-   Ack(seq)
    Samples(samples)                   ->   never acknowledged, never sent again
    Heartbeat(revision)                ->
                                       <-   Ack(seq, lease_seconds), Specs if the node is behind
                                       <-   Specs(base, upto, specs)
                                       <-   Dial(ticket, id, url)       open a stream: connect to `url` with `ticket`
                                       <-   Notice(id, text)            for open terminals; lost if nobody is there

Rules that both sides keep:
  - A batch of specs applies only when base <= the revision the agent has; a gap is asked for again by heartbeat.
    So a lost, doubled or reordered frame does no harm.
  - Only a tombstone deletes. A node never infers a deletion from absence.
  - Conditions are levels: the newest per object replaces older ones, and is sent again until acknowledged.
  - Facts are kept until acknowledged, and counted once by (journal_incarnation, sequence).
  - A server that answers Fenced has seen a newer connection of this node: the agent must connect again.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

PROTOCOL = 1
# `$` alone would let a trailing newline pass.
END = r"$(?!\n)"
MAX_SPEC_BYTES = 256 * 1024
MAX_REPORT_BYTES = 64 * 1024
LINK_PATH = "/api/v1/node-link"

Id = Annotated[str, Meta(pattern=r"^[a-z]{2}-[a-z2-7]{16}" + END)]
Label = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+@/ -]*" + END)]
Message = Annotated[str, Meta(max_length=2000)]
Slug = Annotated[str, Meta(max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*" + END)]  # names a directory
Version = Annotated[str, Meta(max_length=64, pattern=r"^[a-z0-9][a-z0-9.+_-]*" + END)]  # this too
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}" + END)]  # sha256
Count = Annotated[int, Meta(ge=0, le=2**53)]
Port = Annotated[int, Meta(ge=1, le=65535)]
UnixSeconds = Annotated[float, Meta(ge=0, le=1e11)]


class Frame(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all frames; `type` is the class name in lower case."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all parts of frames."""


# --- what a node should look like -------------------------------------------------------------------------------


class SlotSpec(Part, frozen=True):
    id: Id
    gpus: list[Label]  # GPU UUIDs


class KeySpec(Part, frozen=True):
    """One line of authorized_keys. A leased key closes when the node's lease on the server runs out."""

    user_id: Id
    line: Annotated[str, Meta(min_length=16, max_length=16384, pattern=r"^[ -~]+" + END)]
    fingerprint: Annotated[str, Meta(max_length=128)]
    leased: bool = False


class RuntimeSpec(Part, frozen=True):
    """A version of a bundle that the machine sees. Versions lie side by side; `current` points at one of them."""

    bundle: Slug
    version: Version
    digest: Digest  # of the image
    size: Count
    current: bool = True
    applied_at: UnixSeconds = 0


class AllocationBody(Part, frozen=True, omit_defaults=True):
    """What is as by default is not said: an older agent refuses fields that it does not know."""

    name: Label
    org_id: Id
    project_id: Id
    slots: list[SlotSpec]
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    memory_mib: Annotated[int, Meta(ge=16, le=2**40)]
    seat: Annotated[int, Meta(ge=0, le=100_000)]
    ssh_port: Port
    uid_base: Annotated[int, Meta(ge=65536, le=2**32 - 65536)]
    keys: list[KeySpec]
    image: Label = "base"
    restarts: Count = 0  # the machine is started anew whenever this is larger than what it was started with
    repairs: Count = 0
    open_network: bool = False  # machines of the same project on this node may talk to it
    stopped: bool = False  # it is kept, and does not run
    # Only for agents that say in Hello that they know it. No machine waits for one: see RuntimeReport.
    runtimes: Annotated[list[RuntimeSpec], Meta(max_length=64)] = []


class Spec(Part, frozen=True, omit_defaults=True):
    """`body` is None exactly for a tombstone: the only thing that makes a node delete."""

    id: Id
    incarnation: Count
    generation: Count
    revision: Count
    body: AllocationBody | None
    correlation_id: Annotated[str, Meta(max_length=64)] = ""  # only for agents that want it: older ones refuse it
    # Of a tombstone without a machine: to be scrubbed, because an operator gives their slot back. Only for agents that
    # say in Hello that they know it.
    gpus: Annotated[list[Label], Meta(max_length=1024)] = []


# --- what a node says -------------------------------------------------------------------------------------------


class GpuReport(Part, frozen=True):
    uuid: Label
    index: Annotated[int, Meta(ge=0, le=1024)]
    vendor: Label
    model: Label
    memory_mib: Annotated[int, Meta(ge=0, le=2**40)]
    driver: str = ""
    toolkit: str = ""  # what the driver supports at most, like "CUDA 12.4" or "ROCm 6.1"
    trouble: Message = ""  # why it is not healthy
    numa: Annotated[int, Meta(ge=0, le=1024)] = 0
    link_group: Annotated[int, Meta(ge=0, le=1024)] | None = None  # the same: linked directly, by NVLink or XGMI
    card: Annotated[str, Meta(max_length=128)] = ""  # the GPU that this MIG instance is a part of


class SlotProposal(Part, frozen=True):
    """A part of the node that the agent thinks can be given out on its own; an operator approves it."""

    name: Label
    gpus: list[Label]
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    memory_mib: Annotated[int, Meta(ge=16, le=2**40)]
    numa: Annotated[int, Meta(ge=0, le=1024)] = 0


class Inventory(Part, frozen=True):
    hostname: Annotated[str, Meta(max_length=253)]
    address: Annotated[str, Meta(max_length=253)]  # where users reach the published ports
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    memory_mib: Annotated[int, Meta(ge=16, le=2**40)]
    gpus: Annotated[list[GpuReport], Meta(max_length=1024)]
    slots: Annotated[list[SlotProposal], Meta(max_length=1024)]
    ready: bool = True  # doctor passed, drivers answer, base image exists
    reason: Message = ""
    architecture: Annotated[str, Meta(max_length=16)] = ""  # as runtimes call it: amd64, arm64; empty: not said


class StepReport(Part, frozen=True):
    name: Label
    state: Annotated[str, Meta(pattern=r"^(pending|running|done|failed)" + END)]
    started_at: UnixSeconds | None = None
    finished_at: UnixSeconds | None = None
    progress_at: UnixSeconds | None = None
    message: Message = ""
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    log: Annotated[str, Meta(max_length=4000)] = ""


class Failure(Part, frozen=True):
    code: Label
    message: Message
    detail: Message = ""


class Scrub(Part, frozen=True):
    """Evidence that a GPU carries nothing of its last user. `clean` False quarantines its slot."""

    gpu: Label
    clean: bool
    evidence: Message = ""


class RuntimeReport(Part, frozen=True):
    """How a runtime of a machine stands. The machine is ready whether or not its runtimes are.

    fetching: its image is not here yet; ready: visible, and `current` as asked; failed: see `code` and `message`,
    nothing was changed for it and `current` is what it was before.
    """

    bundle: Slug
    version: Version
    state: Annotated[str, Meta(pattern=r"^(fetching|ready|failed)" + END)]
    current: bool = False
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    code: Annotated[str, Meta(max_length=64)] = ""
    message: Message = ""


class Condition(Part, frozen=True):
    """What the node says about one object for one generation.

    converging: steps are running; ready: as specified; failed: see `failure`; gone: a tombstone is carried out.
    """

    id: Id
    incarnation: Count
    generation: Count
    state: Annotated[str, Meta(pattern=r"^(converging|ready|failed|gone)" + END)]
    steps: list[StepReport] = []
    failure: Failure | None = None
    scrubs: list[Scrub] = []
    host_key: Annotated[str, Meta(max_length=1024)] = ""  # public half, for known_hosts
    runtimes: Annotated[list[RuntimeReport], Meta(max_length=64)] = []  # a condition comes again when one changes


class Fact(Part, frozen=True):
    """Something that happened. Never refused for age; counted once."""

    sequence: Count
    kind: Label
    object_id: Id
    at: UnixSeconds
    data: dict[str, str] = {}


class GpuSample(Part, frozen=True):
    """None: this GPU does not tell."""

    gpu: Label
    busy_percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    memory_used_mib: Count | None = None
    memory_mib: Count | None = None
    temperature_celsius: Annotated[float, Meta(ge=-300, le=1000)] | None = None
    power_watts: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    trouble: Message = ""  # why it is not healthy


class Sample(Part, frozen=True):
    """What a running machine uses. Totals count from its last start; the server makes rates of them."""

    id: Id
    at: UnixSeconds
    started_at: UnixSeconds  # another value: the totals began again
    cpu_seconds: Annotated[float, Meta(ge=0, le=1e12)]
    cpus: Annotated[float, Meta(ge=0, le=4096)]  # how many it may use at once
    memory_bytes: Count
    memory_limit_bytes: Count
    processes: Count
    sessions: Count  # people logged in
    oom_kills: Count = 0
    disk_read_bytes: Count = 0
    disk_written_bytes: Count = 0
    disk_used_bytes: Count | None = None
    disk_limit_bytes: Count | None = None
    network_received_bytes: Count = 0
    network_sent_bytes: Count = 0
    gpus: Annotated[list[GpuSample], Meta(max_length=256)] = []


class Holding(Part, frozen=True):
    """An object that the node really has, whatever the server thinks. `gone` ones were deleted by a tombstone."""

    id: Id
    incarnation: Count
    generation: Count
    restarts: Count
    slots: list[Id]
    gone: bool = False
    dirty: list[Label] = []  # GPUs of a gone one that could not be scrubbed: free in no database, however old
    seat: Annotated[int, Meta(ge=0, le=65535)] | None = None  # None: not known, or from an agent that does not say it
    gpus: list[Label] = []  # a database that was restored from before the node joined knows its slots by other ids


# --- frames: agent to server ------------------------------------------------------------------------------------


class Hello(Frame, frozen=True, tag="hello"):
    protocol: Count
    node_id: Id
    signature: Annotated[str, Meta(max_length=256)]  # over the challenge's nonce, hex
    agent_version: Label
    journal_incarnation: Id
    boot_id: Label
    store_id: Id | None
    revision: Count
    inventory: Inventory
    traces: bool = False
    runtimes: bool = False  # it knows what to do with AllocationBody.runtimes
    scrubs: bool = False  # it knows what to do with Spec.gpus


class Holdings(Frame, frozen=True, tag="holdings"):
    seq: Count
    epoch: Count
    store_id: Id
    objects: list[Holding]
    final: bool


class Report(Frame, frozen=True, tag="report"):
    seq: Count
    epoch: Count
    conditions: list[Condition] = []
    facts: list[Fact] = []
    unknown: list[Holding] = []  # on the host, but no spec names them
    inventory: Inventory | None = None


class Samples(Frame, frozen=True, tag="samples"):
    """Not acknowledged: a lost sample is a gap in a curve, and the next one comes soon."""

    seq: Count
    epoch: Count
    samples: Annotated[list[Sample], Meta(max_length=1000)]


class Heartbeat(Frame, frozen=True, tag="heartbeat"):
    seq: Count
    epoch: Count
    store_id: Id
    revision: Count  # the last revision that is safely in the journal
    at: Annotated[float, Meta(ge=0, le=2**40)] = 0.0  # the node's time; 0 from agents that do not say it


# --- frames: server to agent ------------------------------------------------------------------------------------


class Challenge(Frame, frozen=True, tag="challenge"):
    nonce: str


class Welcome(Frame, frozen=True, tag="welcome"):
    store_id: Id
    epoch: Count
    synced: bool  # False: send Holdings before anything is specified
    lease_seconds: Count


class Specs(Frame, frozen=True, tag="specs"):
    store_id: Id
    base: Count
    upto: Count
    specs: list[Spec]


class Ack(Frame, frozen=True, tag="ack"):
    seq: Count
    lease_seconds: Count = 0


class Dial(Frame, frozen=True, tag="dial"):
    """A user waits at another connection of the server: connect that one with the machine's sshd.

    The agent opens a WebSocket to `url` with the one-time `ticket`; then bytes go both ways until one side ends.
    """

    id: Id  # the allocation
    ticket: Annotated[str, Meta(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+" + END)]
    url: Annotated[str, Meta(max_length=2000)]  # of the replica that holds the user's connection; empty: this server
    source: Annotated[str, Meta(max_length=253)] = ""  # where the user is, for the record


class Notice(Frame, frozen=True, tag="notice"):
    """For whoever has a terminal open on a machine. Not acknowledged and not kept: worth nothing later."""

    id: Id
    text: Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[ -~]+" + END)]


class Fenced(Frame, frozen=True, tag="fenced"):
    reason: Message


FromAgent = Hello | Holdings | Report | Samples | Heartbeat
FromServer = Challenge | Welcome | Specs | Ack | Dial | Notice | Fenced

_decode_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)
_decode_server: msgspec.json.Decoder[FromServer] = msgspec.json.Decoder(FromServer)
encode = msgspec.json.encode


def from_agent(frame: str | bytes) -> FromAgent:
    raw = frame.encode() if isinstance(frame, str) else frame
    if len(raw) > MAX_REPORT_BYTES:
        raise msgspec.ValidationError(f"a report has at most {MAX_REPORT_BYTES} bytes, this one has {len(raw)}")
    # PostgreSQL keeps no NUL. A tenant's output may hold one; refused, it would be sent again for ever.
    return _decode_agent.decode(raw.replace(b"\\u0000", b"\\ufffd"))


def from_server(frame: str | bytes) -> FromServer:
    return _decode_server.decode(frame)
