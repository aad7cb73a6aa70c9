"""What the routes of both kinds of webhooks answer."""

from gpuaas.control.app import webhooks
from gpuaas.control.app.webhooks import Place
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Result
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import invalid
from gpuaas.model.webhook import Delivery, Webhook
from gpuaas.wire import api


def webhook_view(webhook: Webhook) -> api.WebhookView:
    return api.WebhookView(
        webhook.id,
        webhook.name,
        webhook.org_id,
        webhook.project_id,
        webhook.url,
        list(webhook.types),
        webhook.disabled_at is None,
        webhook.created_at,
        webhook.previous_until,
    )


def issued(webhook: Webhook, secret: str, status: int) -> Result:
    return Result(api.IssuedWebhook(webhook_view(webhook), secret), status, secret=True)


def deliveries(found: list[Delivery], limit: int) -> api.DeliveryPage:
    items, more = pages.cut(found, limit)
    cursor = pages.encode(items[-1].number) if more else None
    return api.DeliveryPage([_delivery(item) for item in items], cursor)


def replay(tx: Tx, place: Place, webhook: str, data: api.Replay) -> Result:
    if data.delivery is not None:
        return Result(api.Replayed(webhooks.replay_delivery(tx, place, webhook, data.delivery)))
    if data.first is None or data.last is None:
        raise invalid("Which events?", "Say `delivery`, or `first` and `last`.")
    return Result(api.Replayed(webhooks.replay_range(tx, place, webhook, data.feed, data.first, data.last)))


def _delivery(item: Delivery) -> api.DeliveryView:
    return api.DeliveryView(
        item.id,
        item.webhook_id,
        item.project_id,
        item.seq,
        item.type,
        item.state,
        item.attempts,
        item.replay,
        item.created_at,
        item.attempted_at,
        item.next_at,
        item.finished_at,
        item.status,
        item.error,
        item.duration_ms,
    )
