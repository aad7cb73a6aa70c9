"""Personal SSH public keys."""

from gpuaas.control.app import access
from gpuaas.control.operations import access as machine_access
from gpuaas.control.store import allocations, identity, keys
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Taken, conflict, not_found
from gpuaas.model import ssh_key
from gpuaas.model.identity import Caller, SshKey

MAX_KEYS = 64


def add_key(tx: Tx, caller: Caller, name: str, line: str) -> SshKey:
    access.signed_in(tx, caller, "key.write")
    key = register(tx, caller.user_id, name, line)
    org_id = identity.platform_org_id(tx)
    tx.audit("key.add", org_id=org_id, kind="ssh_key", id=key.id, name=name, fingerprint=key.fingerprint)
    return key


def register(tx: Tx, user_id: str, name: str, line: str) -> SshKey:
    """A key of a person, or of a service account."""
    parsed = ssh_key.parse(line)
    have = keys.keys(tx, user_id)
    if len(have) >= MAX_KEYS:
        raise conflict("too_many_keys", f"There are {MAX_KEYS} keys already.", "Remove one first.")
    for key in have:
        if key.fingerprint == parsed.fingerprint:
            raise conflict("key_exists", f"This key is there already, as {key.name!r}.")
        if key.name == name:
            raise conflict("name_taken", f"There is a key called {name!r} already.", "Choose another name.")
    try:
        return keys.insert_key(tx, user_id, name, parsed.type, parsed.blob, parsed.fingerprint)
    except Taken as error:
        raise conflict("key_exists", "This key was added in the same moment.", "List the keys.") from error


def list_keys(tx: Tx, caller: Caller) -> list[SshKey]:
    access.signed_in(tx, caller, "key.read")
    return keys.keys(tx, caller.user_id)


def remove_key(tx: Tx, caller: Caller, name: str) -> None:
    """It also goes from every machine that has it, and what it opened there is closed."""
    access.signed_in(tx, caller, "key.write")
    key, machines = unregister(tx, caller.user_id, name)
    tx.audit(
        "key.remove",
        org_id=identity.platform_org_id(tx),
        kind="ssh_key",
        id=key.id,
        fingerprint=key.fingerprint,
        machines=machines,
    )


def unregister(tx: Tx, user_id: str, name: str) -> tuple[SshKey, list[str]]:
    """The key, and the machines that it left."""
    for key in keys.keys(tx, user_id):
        if name in (key.id, key.name) and keys.remove_key(tx, user_id, key.id):
            # Deleted first: what was put on a machine before is seen now, and nothing can be put there any more.
            started = machine_access.withdraw(tx, allocations.owned(tx, user_id), [key])
            return key, [operation.allocation_id for operation in started]
    raise not_found("key", name)
