"""Host keys and authorized keys on the real file system, and what sshd makes of them."""

import stat
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.access import Access
from gpuaas.node.host.paths import Paths
from node.samples import ID, OTHER_ID, key

UID_BASE = 300_000


def test_a_host_key_is_made_once_and_is_its_own(paths: Paths) -> None:
    access = Access(paths)
    first = access.ensure(ID, UID_BASE, [key()], {})
    assert first.startswith("ssh-ed25519 ")
    assert Access(paths).ensure(ID, UID_BASE, [], {}) == first
    assert access.ensure(OTHER_ID, UID_BASE + 65536, [], {}) != first
    access.close(ID)
    assert not (paths.live(ID) / "access").exists()
    assert access.ensure(ID, UID_BASE, [], {}) == first
    for id in (ID, OTHER_ID):
        access.remove(id)
        access.remove(id)
    assert access.ids() == set()
    assert access.ensure(ID, UID_BASE, [], {}) != first
    access.remove(ID)


def test_exactly_the_listed_keys(paths: Paths) -> None:
    access = Access(paths)
    file = paths.live(ID) / "access/keys/gpu"
    access.ensure(ID, UID_BASE, [key("SHA256:one"), key("SHA256:two")], {})
    assert len(file.read_text().splitlines()) == 2
    access.ensure(ID, UID_BASE, [], {})
    assert file.read_text() == ""
    private = (paths.live(ID) / "access/host_key").stat()
    assert (stat.S_IMODE(private.st_mode), private.st_uid) == (0o600, UID_BASE)
    access.remove(ID)


def test_a_damaged_host_key_is_not_replaced_in_silence(paths: Paths) -> None:
    access = Access(paths)
    access.ensure(ID, UID_BASE, [], {})
    (paths.state / "host-keys" / ID).write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n")
    with pytest.raises(HostError, match="damaged"):
        access.ensure(ID, UID_BASE, [], {})
    access.remove(ID)


@pytest.mark.parametrize("value", ["a\nPermitRootLogin yes", 'a" "X=1', "a\\", "ü", "\0"])
def test_nothing_gets_into_the_configuration_by_a_value(paths: Paths, value: str) -> None:
    with pytest.raises(HostError, match="characters"):
        Access(paths).ensure(ID, UID_BASE, [], {"VISIBLE": value})
    Access(paths).remove(ID)


def test_links_in_its_way_are_replaced_and_not_followed(paths: Paths, work: Path) -> None:
    access, canary = Access(paths), work / "canary"
    canary.write_text("untouched")
    access.ensure(ID, UID_BASE, [], {})
    directory = paths.live(ID) / "access"
    (directory / "sshd_config").unlink()
    (directory / "sshd_config").symlink_to(canary)
    (directory / ".host_key").symlink_to(canary)
    access.ensure(ID, UID_BASE, [key()], {})
    assert canary.read_text() == "untouched"
    assert not (directory / "sshd_config").is_symlink()
    access.remove(ID)
