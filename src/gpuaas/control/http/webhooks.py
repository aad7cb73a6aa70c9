"""Routes: webhooks of a project."""

from typing import Any

from litestar import Response, delete, get, post, put

from gpuaas.control.app import webhooks
from gpuaas.control.app.webhooks import of_project
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, DeliveryState, Limit, Name
from gpuaas.control.http.webhook_views import deliveries, issued, replay, webhook_view
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api

READ, WRITE = {"action": "webhook.read"}, {"action": "webhook.write"}
ALL = "/projects/{project:str}/webhooks"
ONE = ALL + "/{webhook:str}"


@get(ALL, opt=READ, sync_to_thread=True, summary="Webhooks of a project")
def list_webhooks(request: Req, project: Name) -> Response[api.WebhookPage]:
    def work(tx: Tx, caller: Caller) -> api.WebhookPage:
        found = webhooks.list_webhooks(tx, of_project("read", project)(tx, caller))
        return api.WebhookPage([webhook_view(item) for item in found], None)

    return read(request, work)


@post(ALL, opt=WRITE, sync_to_thread=True, summary="Make a webhook of a project; its secret is shown once")
def create_webhook(request: Req, project: Name, data: api.NewWebhook) -> Response[api.IssuedWebhook]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_project("write", project)(tx, caller)
        return issued(*webhooks.create_webhook(tx, place, data.name, data.url, data.types), 201)

    return mutate(request, work, data)


@get(ONE, opt=READ, sync_to_thread=True, summary="One webhook of a project")
def show_webhook(request: Req, project: Name, webhook: Name) -> Response[api.WebhookView]:
    def work(tx: Tx, caller: Caller) -> api.WebhookView:
        return webhook_view(webhooks.show_webhook(tx, of_project("read", project)(tx, caller), webhook))

    return read(request, work)


@put(ONE, opt=WRITE, sync_to_thread=True, summary="Change a webhook of a project, or stop it for a while")
def change_webhook(request: Req, project: Name, webhook: Name, data: api.WebhookChange) -> Response[api.WebhookView]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_project("write", project)(tx, caller)
        return Result(webhook_view(webhooks.change_webhook(tx, place, webhook, data.url, data.types, data.enabled)))

    return mutate(request, work, data)


@delete(ONE, opt=WRITE, sync_to_thread=True, summary="Remove a webhook of a project, with what is on its way")
def remove_webhook(request: Req, project: Name, webhook: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        webhooks.remove_webhook(tx, of_project("write", project)(tx, caller), webhook)
        return Result(None, 204)

    return mutate(request, work)


@post(ONE + "/rotate", opt=WRITE, status_code=200, sync_to_thread=True, summary="A new secret; the old one fades out")
def rotate_webhook(request: Req, project: Name, webhook: Name, data: api.Rotation) -> Response[api.IssuedWebhook]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_project("write", project)(tx, caller)
        return issued(*webhooks.rotate_secret(tx, place, webhook, data.overlap_seconds), 200)

    return mutate(request, work, data)


@get(ONE + "/deliveries", opt=READ, sync_to_thread=True, summary="What was sent to a webhook, newest first")
def list_webhook_deliveries(
    request: Req, project: Name, webhook: Name, only: DeliveryState = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[api.DeliveryPage]:
    before = pages.number(cursor) or None

    def work(tx: Tx, caller: Caller) -> api.DeliveryPage:
        place = of_project("read", project)(tx, caller)
        return deliveries(webhooks.list_deliveries(tx, place, webhook, only, before, limit + 1), limit)

    return read(request, work)


@post(ONE + "/replay", opt=WRITE, status_code=200, sync_to_thread=True, summary="Send a delivery, or a range, again")
def replay_webhook(request: Req, project: Name, webhook: Name, data: api.Replay) -> Response[api.Replayed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return replay(tx, of_project("write", project)(tx, caller), webhook, data)

    return mutate(request, work, data)


ROUTES: list[Any] = [
    list_webhooks,
    create_webhook,
    show_webhook,
    change_webhook,
    remove_webhook,
    rotate_webhook,
    list_webhook_deliveries,
    replay_webhook,
]
