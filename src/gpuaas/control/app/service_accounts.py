"""Service accounts: for programs. Each belongs to one project, has a role there and nowhere else, and never logs in."""

from datetime import timedelta
from typing import Any

from gpuaas.control.app import access
from gpuaas.control.app import keys as registered
from gpuaas.control.app.sessions import check_scopes
from gpuaas.control.app.users import end_everything
from gpuaas.control.store import allocations, identity, keys, service_accounts, tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import SERVICE_DOMAIN, Caller, Project, SshKey, Token, User

MAX_ACCOUNTS = 100
READ, WRITE = "service_account.read", "service_account.write"
Account = tuple[User, str]  # with its role


def list_accounts(tx: Tx, caller: Caller, project_name: str) -> list[Account]:
    return service_accounts.accounts(tx, access.in_project(tx, caller, READ, project_name).id)


def create(tx: Tx, caller: Caller, project_name: str, name: str, role: str) -> Account:
    project = access.in_project(tx, caller, WRITE, project_name)
    if len(service_accounts.accounts(tx, project.id)) >= MAX_ACCOUNTS:
        raise conflict("too_many_accounts", f"The project has {MAX_ACCOUNTS} service accounts.", "Delete one first.")
    made = add(tx, project, name, role)
    _record(tx, "service_account.create", project, made.id, name=name, role=role)
    return made, role


def add(tx: Tx, project: Project, name: str, role: str) -> User:
    made = service_accounts.insert_account(tx, project.id, _address(tx, project, name), name)
    if made is None:
        raise conflict("name_taken", f"The project has a service account {name!r} already.", "Choose another name.")
    identity.set_member(tx, project.id, made.id, role)
    return made


def remove(tx: Tx, caller: Caller, project_name: str, name: str) -> list[str]:
    """Tokens, streams and SSH sessions end with the commit. Answers the machines that are left to the project."""
    project = access.in_project(tx, caller, WRITE, project_name)
    account, _ = _found(tx, project, name)
    tokens.revoke_all(tx, account.id)
    identity.set_disabled(tx, account.id, tx.now)
    identity.remove_member(tx, project.id, account.id)
    end_everything(tx, account.id)
    service_accounts.forget(tx, account.id, _address(tx, project, account.id))
    left = [machine.name for machine in allocations.owned(tx, account.id)]
    _record(tx, "service_account.delete", project, account.id, name=account.name, machines=left)
    return left


def list_tokens(tx: Tx, caller: Caller, project_name: str, name: str) -> list[Token]:
    project = access.in_project(tx, caller, WRITE, project_name)
    return tokens.tokens(tx, _found(tx, project, name)[0].id)


def create_token(
    tx: Tx, caller: Caller, project_name: str, account_name: str, name: str, scopes: list[str], lifetime_seconds: int,
    source: str,
) -> tuple[Token, str]:  # fmt: skip
    """Covers at most what the account's role allows, and what the token that asks covers."""
    project = access.in_project(tx, caller, WRITE, project_name)
    account, _ = _found(tx, project, account_name)
    check_scopes(caller, scopes)
    until = tx.now + timedelta(seconds=lifetime_seconds)
    token, secret = tokens.insert_token(tx, account.id, name, tuple(scopes), until, source=source)
    _record(tx, "service_account.token", project, account.id, token=token.id, scopes=scopes)
    return token, secret


def revoke_token(tx: Tx, caller: Caller, project_name: str, name: str, token_id: str) -> None:
    project = access.in_project(tx, caller, WRITE, project_name)
    account, _ = _found(tx, project, name)
    if not tokens.revoke(tx, account.id, token_id):
        raise not_found("token", token_id)
    _record(tx, "service_account.revoke_token", project, account.id, token=token_id)


def list_keys(tx: Tx, caller: Caller, project_name: str, name: str) -> list[SshKey]:
    project = access.in_project(tx, caller, READ, project_name)
    return keys.keys(tx, _found(tx, project, name)[0].id)


def add_key(tx: Tx, caller: Caller, project_name: str, account_name: str, name: str, line: str) -> SshKey:
    project = access.in_project(tx, caller, WRITE, project_name)
    account, _ = _found(tx, project, account_name)
    key = registered.register(tx, account.id, name, line)
    _record(tx, "service_account.add_key", project, account.id, key=key.id, fingerprint=key.fingerprint)
    return key


def remove_key(tx: Tx, caller: Caller, project_name: str, account_name: str, name: str) -> None:
    project = access.in_project(tx, caller, WRITE, project_name)
    account, _ = _found(tx, project, account_name)
    key, machines = registered.unregister(tx, account.id, name)
    _record(tx, "service_account.remove_key", project, account.id, fingerprint=key.fingerprint, machines=machines)


def _found(tx: Tx, project: Project, name: str) -> Account:
    for account, role in service_accounts.accounts(tx, project.id):
        if name in (account.id, account.name, account.email):
            return account, role
    raise not_found("service account", name)


def _address(tx: Tx, project: Project, name: str) -> str:
    """What stands wherever a person's address would: ci@lab.acme.service."""
    org = identity.org(tx, project.org_id)
    assert org is not None
    return f"{name}@{project.slug}.{org.slug}.{SERVICE_DOMAIN}"


def _record(tx: Tx, action: str, project: Project, id: str, **data: Any) -> None:
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "service_account", "id": id}
    tx.audit(action, **about, **data)
    tx.emit(action, **about, **data)
