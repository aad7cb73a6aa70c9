"""Routes: the line of launches that wait."""

from typing import Any

from litestar import Response, get

from gpuaas.control.app import queue
from gpuaas.control.app.queue import Waiting
from gpuaas.control.http.endpoint import Req, read
from gpuaas.control.http.params import OptionalName
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@get("/queue", opt={"action": "queue.read"}, sync_to_thread=True, summary="Launches that wait, in their order, and why")
def list_queue(request: Req, project: OptionalName = None) -> Response[api.QueuePage]:
    def work(tx: Tx, caller: Caller) -> api.QueuePage:
        return api.QueuePage([_view(item) for item in queue.list_waiting(tx, caller, project)], None)

    return read(request, work)


def _view(item: Waiting) -> api.WaitingView:
    ticket = item.ticket
    reasons = [
        api.ReasonView(str(r["code"]), str(r["message"]), int(str(r["count"])), _nodes(r) if item.named else [])
        for r in ticket.reasons
    ]
    return api.WaitingView(
        item.position,
        ticket.project_id,
        [machine.id for machine in item.machines],
        [machine.name for machine in item.machines],
        item.offer,
        ticket.priority,
        item.kept,
        reasons,
        ticket.created_at,
        ticket.expires_at,
        ticket.preemptible,
    )


def _nodes(reason: dict[str, object]) -> list[str]:
    found = reason.get("nodes", [])
    return [str(name) for name in found] if isinstance(found, list) else []


ROUTES: list[Any] = [list_queue]
