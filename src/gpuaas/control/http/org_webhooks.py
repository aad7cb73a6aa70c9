"""Routes: webhooks of an organisation."""

from typing import Any

from litestar import Response, delete, get, post, put

from gpuaas.control.app import webhooks
from gpuaas.control.app.webhooks import of_org
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, DeliveryState, Limit, Name
from gpuaas.control.http.webhook_views import deliveries, issued, replay, webhook_view
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api

READ, WRITE = {"action": "org_webhook.read"}, {"action": "org_webhook.write"}
ALL = "/orgs/{org:str}/webhooks"
ONE = ALL + "/{webhook:str}"


@get(ALL, opt=READ, sync_to_thread=True, summary="Webhooks of an organisation")
def list_org_webhooks(request: Req, org: Name) -> Response[api.WebhookPage]:
    def work(tx: Tx, caller: Caller) -> api.WebhookPage:
        found = webhooks.list_webhooks(tx, of_org("read", org)(tx, caller))
        return api.WebhookPage([webhook_view(item) for item in found], None)

    return read(request, work)


@post(ALL, opt=WRITE, sync_to_thread=True, summary="Make a webhook of an organisation; its secret is shown once")
def create_org_webhook(request: Req, org: Name, data: api.NewWebhook) -> Response[api.IssuedWebhook]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_org("write", org)(tx, caller)
        return issued(*webhooks.create_webhook(tx, place, data.name, data.url, data.types), 201)

    return mutate(request, work, data)


@get(ONE, opt=READ, sync_to_thread=True, summary="One webhook of an organisation")
def show_org_webhook(request: Req, org: Name, webhook: Name) -> Response[api.WebhookView]:
    def work(tx: Tx, caller: Caller) -> api.WebhookView:
        return webhook_view(webhooks.show_webhook(tx, of_org("read", org)(tx, caller), webhook))

    return read(request, work)


@put(ONE, opt=WRITE, sync_to_thread=True, summary="Change a webhook of an organisation, or stop it for a while")
def change_org_webhook(request: Req, org: Name, webhook: Name, data: api.WebhookChange) -> Response[api.WebhookView]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_org("write", org)(tx, caller)
        return Result(webhook_view(webhooks.change_webhook(tx, place, webhook, data.url, data.types, data.enabled)))

    return mutate(request, work, data)


@delete(ONE, opt=WRITE, sync_to_thread=True, summary="Remove a webhook of an organisation, with what is on its way")
def remove_org_webhook(request: Req, org: Name, webhook: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        webhooks.remove_webhook(tx, of_org("write", org)(tx, caller), webhook)
        return Result(None, 204)

    return mutate(request, work)


@post(ONE + "/rotate", opt=WRITE, status_code=200, sync_to_thread=True, summary="A new secret; the old one fades out")
def rotate_org_webhook(request: Req, org: Name, webhook: Name, data: api.Rotation) -> Response[api.IssuedWebhook]:
    def work(tx: Tx, caller: Caller) -> Result:
        place = of_org("write", org)(tx, caller)
        return issued(*webhooks.rotate_secret(tx, place, webhook, data.overlap_seconds), 200)

    return mutate(request, work, data)


@get(ONE + "/deliveries", opt=READ, sync_to_thread=True, summary="What was sent to a webhook, newest first")
def list_org_webhook_deliveries(
    request: Req, org: Name, webhook: Name, only: DeliveryState = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[api.DeliveryPage]:
    before = pages.number(cursor) or None

    def work(tx: Tx, caller: Caller) -> api.DeliveryPage:
        place = of_org("read", org)(tx, caller)
        return deliveries(webhooks.list_deliveries(tx, place, webhook, only, before, limit + 1), limit)

    return read(request, work)


@post(ONE + "/replay", opt=WRITE, status_code=200, sync_to_thread=True, summary="Send a delivery, or a range, again")
def replay_org_webhook(request: Req, org: Name, webhook: Name, data: api.Replay) -> Response[api.Replayed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return replay(tx, of_org("write", org)(tx, caller), webhook, data)

    return mutate(request, work, data)


ROUTES: list[Any] = [
    list_org_webhooks,
    create_org_webhook,
    show_org_webhook,
    change_org_webhook,
    remove_org_webhook,
    rotate_org_webhook,
    list_org_webhook_deliveries,
    replay_org_webhook,
]
