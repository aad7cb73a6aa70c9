"""T17: a text that becomes a part of something else arrives there as it was, or is refused: it is never two things."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as changed

from gpuaas.kit.errors import HostError
from gpuaas.node import validate
from gpuaas.node.host.access import Access, _set_env
from gpuaas.node.host.container.boot import Boot, ReadOnlyBind
from gpuaas.node.host.container.config import config
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.gpus.cdi import Refused, parse
from gpuaas.node.host.gpus.cdi_edits import OciEdits
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes import descriptor
from gpuaas.wire.node import KeySpec, RuntimeSpec, Spec
from node.samples import ID, body
from node.test_cdi import spec
from root.conftest import needs
from root.escape.tenants import person
from root.machines import Machine

CASES = 2000  # in each of five places
EVIL = ["\n", "\r", "\r\n", "\0", "$(id)", "`id`", ";", "'", '"', "\\", "#", "=", "{", "%", "*", "&&", "|", "\x1b[2J"]
EVIL += ["\x7f", "\u2028", "\u202e", "\ud800", "\u00a0", "é", "..", "/", "//", " ", "\t", "${IFS}", "!", "~", "<", ">"]
PLAIN = ["a", "b1", "x-y", "3.11", "python", "A_B", "0"]
BOOT = Boot(ID, "machine", Path("/r/rootfs"), 1 << 20, "/proc/1/fd/3", "/proc/1/fd/4", f"/g/{ID}", ("/init",), 1 << 20)
NOTHING = OciEdits([], [], [], [], {}, [])


def texts(seed: int) -> Iterator[str]:
    """As many with something evil in them as without, so that none is refused for its neighbours alone."""
    rng = random.Random(seed)
    for number in range(CASES):
        parts = [rng.choice(PLAIN) for _ in range(rng.randrange(4))]
        if number % 4:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(EVIL))
        yield "".join(parts)


def taken(seed: int, use: Callable[[str], Any]) -> dict[str, Any]:
    """What was made of each text that was not refused."""
    made = {}
    refused = 0
    for text in texts(seed):
        try:
            made[text] = use(text)
        except (HostError, Refused):
            refused += 1
    assert refused > CASES // 10, "nothing is refused here"
    assert made, "everything is refused here"
    return made


def test_the_descriptor(tmp_path: Path) -> None:
    """As a shell reads it, and as programs do that know of no quotes but these."""

    def written(text: str) -> str:
        return descriptor.text(ID, [RuntimeSpec("tool", text, "0" * 64, 1, applied_at=1)])

    files = taken(1, written)
    script = ['say() { printf "%s\\0" "$GPUAAS_RUNTIME_TOOL_VERSION" "$GPUAAS_RUNTIME_TOOL_ROOT"; }']
    for number, text in enumerate(files.values()):
        (tmp_path / f"{number}.env").write_text(text)
        script.append(f". ./{number}.env; say")
    for shell in filter(shutil.which, ("dash", "bash")):
        done = subprocess.run(
            [shell], input="\n".join(script), capture_output=True, text=True, cwd=tmp_path, timeout=60
        )
        assert done.stderr == ""
        said = done.stdout.split("\0")[:-1]
        assert said == [each for text in files for each in (text, f"/opt/gpuaas/runtimes/tool/{text}")]
    for text, file in files.items():
        lines = [line.partition("=") for line in file.splitlines()]
        assert ("GPUAAS_RUNTIME_TOOL_VERSION", "=", f"'{text}'") in lines
        assert len(lines) == 7


@needs("runc", "catatonit")
def test_what_sshd_is_told(machine: Machine) -> None:
    """Everything that was taken in one line of its configuration: a quote that did not hold would spoil the others."""
    values = taken(2, lambda text: _set_env({"NAME": text}))
    taken(3, lambda text: _set_env({f"A{text}": "value"}))
    environment = {f"V{number}": value for number, value in enumerate(values)}
    machine.start()
    keys = "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /tmp/key; cat >/tmp/config"
    text = f"HostKey /tmp/key\nForceCommand none\n{_set_env(environment)}"
    assert machine.exec("/bin/sh", "-c", keys, text=text).code == 0
    done = machine.exec("/usr/sbin/sshd", "-T", "-f", "/tmp/config")
    assert done.code == 0, done.output
    lines = done.output.splitlines()
    assert [line for line in lines if line.startswith("forcecommand")] == ["forcecommand none"]
    assert [line for line in lines if line.startswith("hostkey ")] == ["hostkey /tmp/key"]
    told = [line.removeprefix("setenv ") for line in lines if line.startswith("setenv ")]
    assert told == [f"{name}={value}" for name, value in environment.items()]


def test_a_cdi_spec() -> None:
    def edits(text: str) -> Any:
        given = {"env": [f"A={text}"], "mounts": [{"hostPath": f"/h/{text}", "containerPath": f"/c/{text}"}]}
        return parse(json.dumps(spec(device=given)).encode()).devices[0].container_edits

    for text, made in taken(4, edits).items():
        assert made.env == [f"A={text}"]
        assert made.mounts[0].container_path in (f"/c/{text}", f"/c/{text}".rstrip("/"))
        assert not any(ord(char) < 32 or ord(char) == 127 for char in text)


def test_config_json() -> None:
    rng = random.Random(5)

    def made(text: str) -> Any:
        changes: list[dict[str, Any]] = [
            {"hostname": text},
            {"init": ("/init", text)},
            {"binds": (ReadOnlyBind(f"/s/{text}", "/opt/x"),)},
            {"binds": (ReadOnlyBind("/s", f"/opt/{text}"),)},
            {"gpus": replace(NOTHING, env=[f"NAME={text}"])},
            {"gpus": replace(NOTHING, hooks={"prestart": [{"path": "/x", "args": [text]}]})},
        ]
        place = rng.randrange(len(changes))
        return place, config(replace(BOOT, **changes[place]))

    for text, (place, whole) in taken(6, made).items():
        read = json.loads(json.dumps(whole))
        assert read == whole
        found = [
            read["hostname"],
            read["process"]["args"][-1],
            read["mounts"][-1]["source"].removeprefix("/s/"),
            read["mounts"][-1]["destination"].removeprefix("/opt/"),
            read["process"]["env"][-1].removeprefix("NAME="),
            (read["hooks"].get("prestart") or [{"args": [""]}])[0]["args"][0],
        ]
        assert found[place] == text
        assert text.isprintable()


@needs("ssh-keygen")
def test_authorized_keys(work: Path) -> None:
    """One line for each key, and ssh-keygen finds that key in it: whatever stands around it."""
    key = person(work).key
    kind, blob = key.line.split()[:2]
    wanted = body(FakeHost())
    rng = random.Random(7)

    def written(text: str) -> KeySpec:
        line = rng.choice(
            [f"{text}{kind} {blob}", f"{kind} {blob} {text}", f"{kind}{text} {blob}", f"{kind} {blob}{text}"]
        )
        made = changed(key, line=line)
        if validate.refusal(Spec(ID, 1, 1, 1, changed(wanted, keys=[made]))) is not None:
            raise HostError("take", "a key", "it is refused")
        return made

    keys = list(taken(8, written).values())
    access = Access(Paths(work / "state", work / "run"))
    access.ensure(ID, 65536, keys, {})
    file = work / f"run/allocations/{ID}/access/keys/gpu"
    lines = file.read_text().splitlines()
    assert lines == [each.line for each in keys]
    done = subprocess.run(["ssh-keygen", "-l", "-f", file], capture_output=True, text=True, timeout=60)
    fingerprints = [line.split()[1] for line in done.stdout.splitlines()]
    # Bytes after the key make it another, or none; never two, and never one with options.
    assert fingerprints.count(key.fingerprint) >= sum(line.split()[:2] == [kind, blob] for line in lines)
    assert len(fingerprints) <= len(lines)
    assert all(line.startswith(f"{kind} ") for line in lines)
