"""SSH public keys: whatever is sent, either it is refused or exactly one plain key comes out."""

import base64
import random
import re
import struct
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gpuaas.kit.errors import Problem
from gpuaas.model.ssh_key import PLAIN_TYPES, parse

ONE_LINE = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+=*")


def line_of(key: object) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()  # type: ignore[attr-defined,no-any-return]


def packed(*fields: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(field)) + field for field in fields)


def written(kind: str, *fields: bytes) -> str:
    return f"{kind} {base64.b64encode(packed(kind.encode(), *fields)).decode()}"


ED25519 = line_of(ed25519.Ed25519PrivateKey.generate().public_key())
RSA = line_of(rsa.generate_private_key(65537, 2048).public_key())
POINT = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
GOOD = {
    "ed25519": ED25519,
    "rsa": RSA,
    "p256": line_of(ec.generate_private_key(ec.SECP256R1()).public_key()),
    "p384": line_of(ec.generate_private_key(ec.SECP384R1()).public_key()),
    "p521": line_of(ec.generate_private_key(ec.SECP521R1()).public_key()),
    "sk-ed25519": written("sk-ssh-ed25519@openssh.com", base64.b64decode(ED25519.split()[1])[-32:], b"ssh:"),
    "sk-p256": written("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", POINT, b"ssh:"),
}


def keygen(line: str) -> str | None:
    """The fingerprint that OpenSSH sees, None when it refuses."""
    done = subprocess.run(
        ["ssh-keygen", "-l", "-f", "-"], input=line + "\n", capture_output=True, text=True, check=False
    )
    return done.stdout.split()[1] if done.returncode == 0 else None


def check(line: str) -> None:
    """What comes out is one line of type and blob, and OpenSSH agrees on it."""
    key = parse(line)
    out = f"{key.type} {key.blob}"
    assert ONE_LINE.fullmatch(out)
    assert key.type in PLAIN_TYPES
    assert parse(out) == key, "written again, it is the same key"


@pytest.mark.parametrize("kind", GOOD)
def test_good_keys_are_taken_without_what_surrounds_them(kind: str) -> None:
    line = GOOD[kind]
    check(line)
    key = parse(f"  {line} me@laptop with words \t ".replace("\t", " "))
    assert f"{key.type} {key.blob}" == line
    assert key.fingerprint == keygen(f"{key.type} {key.blob}")


DSA = line_of(dsa.generate_private_key(1024).public_key())  # noqa: S505 - to be refused
SHORT_RSA = line_of(rsa.generate_private_key(65537, 1024).public_key())  # noqa: S505 - to be refused
BAD = {
    "nothing": "",
    "a word": "hello",
    "only a type": "ssh-ed25519",
    "an option": f'command="/bin/sh" {ED25519}',
    "several options": f'from="*",permitopen="x:1",no-pty {ED25519}',
    "a certificate authority": f"cert-authority {ED25519}",
    "a certificate": ED25519.replace("ssh-ed25519", "ssh-ed25519-cert-v01@openssh.com"),
    "two lines": f"{ED25519}\n{RSA}",
    "a hidden second line": f"{ED25519} x\r{RSA}",
    "a comment with NUL": f"{ED25519} a\x00b",
    "a comment with an escape": f"{ED25519} \x1b[2J",
    "a line separator": f"{ED25519} a\u2028b",
    "DSA": DSA,
    "short RSA": SHORT_RSA,
    "the wrong type": ED25519.replace("ssh-ed25519", "ssh-rsa"),
    "a tab": ED25519.replace(" ", "\t"),
    "more after the key": written("ssh-ed25519", bytes(32), b"extra"),
    "a short key": written("ssh-ed25519", bytes(31)),
    "a long key": written("ssh-ed25519", bytes(33)),
    "a cut key": ED25519[:-8],
    "the wrong curve": written("ecdsa-sha2-nistp256", b"nistp384", POINT),
    "a compressed point": written("ecdsa-sha2-nistp256", b"nistp256", b"\x02" + POINT[1:33]),
    "a huge length": "ssh-ed25519 " + base64.b64encode(b"\xff\xff\xff\xff").decode(),
    "base64 with holes": ED25519[:20] + "\u200b" + ED25519[20:],
    "URL-safe base64": f"ssh-ed25519 {ED25519.split()[1].replace('A', '-')}",
    "a megabyte": ED25519 + " " + "x" * 1_000_000,
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "RSA with exponent 1": written("ssh-rsa", b"\x01", b"\x00" + b"\xff" * 256),
    "RSA with an even exponent": written("ssh-rsa", b"\x04", b"\x00" + b"\xff" * 256),
    "RSA with a negative modulus": written("ssh-rsa", b"\x01\x00\x01", b"\xff" * 256),
    "a point that is not on its curve": written("ecdsa-sha2-nistp256", b"nistp256", b"\x04" + bytes(64)),
    "sk without an application": written("sk-ssh-ed25519@openssh.com", bytes(32)),
}


@pytest.mark.parametrize("why", BAD)
def test_bad_keys_are_refused(why: str) -> None:
    with pytest.raises(Problem) as refused:
        parse(BAD[why])
    assert (refused.value.code, refused.value.status) == ("invalid_ssh_key", 422)


def mutated(rng: random.Random) -> str:
    line = rng.choice([*GOOD.values(), *BAD.values()])[:2000]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(line) + 1)
        match rng.randrange(6):
            case 0:
                line = line[:at] + rng.choice("\x00\n\r\t \"'\\,=#AZaz09+/-\u2028é") + line[at:]
            case 1:
                line = line[:at] + line[at + rng.randint(1, 9) :]
            case 2:
                line = line[:at] + rng.choice(list(GOOD.values())) + line[at:]
            case 3:
                line = rng.choice(["cert-authority ", 'command="x" ', "# ", "ssh-rsa ", " "]) + line
            case 4:
                line = line + rng.choice([" comment", "\n", " = ", "\\", "\x7f"])
            case _:
                line = line[:at] + chr(rng.randrange(1, 0x2FFF)) + line[at + 1 :]
    return line


def test_five_thousand_strange_lines() -> None:
    """None makes anything but a refusal or one clean line; OpenSSH agrees on a sample of what is taken."""
    rng = random.Random(25)
    taken, refusals = [], set()
    for _ in range(5000):
        line = mutated(rng)
        try:
            key = parse(line)
        except Problem as problem:
            refusals.add(problem.code)
            continue
        check(line)
        taken.append(key)
    assert refusals == {"invalid_ssh_key"}
    assert 50 < len(taken) < 4000
    lines = "\n".join(f"{key.type} {key.blob}" for key in taken) + "\n"
    done = subprocess.run(["ssh-keygen", "-l", "-f", "-"], input=lines, capture_output=True, text=True, check=False)
    assert [line.split()[1] for line in done.stdout.splitlines()] == [key.fingerprint for key in taken], done.stderr
