"""A small control plane over a real store: one project, one caller, nodes driven by hand."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import text

from control.fleet import Agent, join_token
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import keys
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store import allocations, nodes, operations, slots, stores, tokens
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.node import Node, Slot
from gpuaas.model.operation import Operation
from gpuaas.wire.api import Launch


class Cluster:
    def __init__(self, database_url: str) -> None:
        made = bootstrap(database_url, email="root@example.org", password="correct horse", org="home", project="lab")
        self.store = Store(connect(database_url, pool_size=4))
        self.store.transact(stores.ensure)
        self.caller = self.store.transact(self._caller, made.token)

    def _caller(self, tx: Tx, token: str) -> Caller:
        caller = tokens.caller(tx, token)
        assert caller is not None
        public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        keys.add_key(tx, caller, "laptop", public.decode())
        self.project, _ = people.list_projects(tx, caller)[0]
        return caller

    def agent(self, name: str = "node-1", gpus: int = 2, connect: bool = True, **more: Any) -> Agent:
        agent = Agent(self.store, name, gpus).join(self.store.transact(join_token, **more))
        return agent.connect() if connect else agent

    def launch(self, name: str = "a", **more: Any) -> str:
        started, _ = self.store.transact(verbs.launch, self.caller, Launch(name, **{"offer": "h100-1", **more}))
        return started[0][0].id

    def release(self, id: str) -> None:
        self.store.transact(verbs.release, self.caller, id, self.allocation(id).name)

    def restart(self, id: str) -> None:
        self.store.transact(verbs.restart, self.caller, id, self.allocation(id).name)

    def allocation(self, id: str) -> Allocation:
        found = self.store.transact(allocations.by_id, id)
        assert found is not None
        return found

    def operation(self, id: str) -> Operation:
        """The newest of this allocation."""
        return self.store.transact(operations.page, [self.project.id], id, None, 1)[0]

    def node(self, agent: Agent) -> Node:
        found = self.store.transact(nodes.node, agent.node_id)
        assert found is not None
        return found

    def slots(self, agent: Agent) -> list[Slot]:
        return self.store.transact(slots.slots, agent.node_id)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        """Rows, if it gives any."""

        def work(tx: Tx) -> list[Any]:
            found = tx.conn.execute(text(statement), values)
            return list(found) if found.returns_rows else []

        return self.store.transact(work)
