"""Planted bugs in the line, in who gets in, in quotas of every kind, and in money."""

from dataclasses import replace

from .planted import CONTROL, MODEL, Mutant

SEEDS = range(64, 64 + 8 * 30, 8)  # those that are about these things: see `run_seed`
MORE_SEEDS = range(1000, 1000 + 8 * 60, 8)  # for what is rarely met


def _more(mutant: Mutant) -> range:
    return SEEDS if mutant.seed is None or mutant.seed < MORE_SEEDS.start else MORE_SEEDS


_PLANTED = (
    Mutant(
        "who would wait no longer is let go too early",
        CONTROL + "store/queue.py",
        "WHERE expires_at <= %(now)s ORDER BY",
        "WHERE expires_at - interval '10 seconds' <= %(now)s ORDER BY",
        64,
    ),
    Mutant(
        "who would wait no longer waits on",
        CONTROL + "store/queue.py",
        "WHERE expires_at <= %(now)s ORDER BY",
        "WHERE expires_at + interval '1 minute' <= %(now)s ORDER BY",
        88,
    ),
    Mutant(
        "nobody is told that they no longer wait",
        CONTROL + "operations/waiting.py",
        '        tx.emit("queue.expired", **about, id=allocation.id, name=allocation.name)\n',
        "",
        64,
    ),
    Mutant(
        "the machines of who is disabled let them in",
        CONTROL + "app/users.py",
        "    started = machine_access.withdraw(tx, allocations.owned(tx, user_id), keys.keys(tx, user_id))\n",
        "    started = []\n",
        64,
    ),
    Mutant(
        "the logins of who is disabled go on",
        CONTROL + "store/tokens.py",
        "t.tokens.c.revoked_at.is_(None), t.tokens.c.expires_at > tx.now)\n        .values(revoked_at=tx.now)",
        't.tokens.c.revoked_at.is_(None), t.tokens.c.kind == "api")\n        .values(revoked_at=tx.now)',
        64,
    ),
    Mutant(
        "a book counts by when it was written",
        MODEL + "price.py",
        "(book for book in books if book.valid_from <= moment)",
        "(book for book in books)",
        88,
    ),
    Mutant(
        "an interval has the price of its beginning",
        MODEL + "price.py",
        "    cuts = sorted({book.valid_from for book in books if begin < book.valid_from < end})\n",
        "    cuts: list[datetime] = []\n",
        112,
    ),
    Mutant(
        "the first price counts for ever",
        MODEL + "price.py",
        "key=lambda book: book.version, default=None",
        "key=lambda book: -book.version, default=None",
        112,
    ),
    Mutant(
        "what was given back is charged",
        MODEL + "usage.py",
        "    sign = -1 if correction else 1\n",
        "    sign = 1\n",
        112,
    ),
    Mutant(
        "the same time is given back twice",
        CONTROL + "app/usage.py",
        "        if other.started_at < last and first < other.ended_at:\n",
        "        if other.started_at == first and last == other.ended_at:\n",
        112,
    ),
    Mutant(
        "what is open costs nothing yet",
        MODEL + "usage.py",
        "        stop = min(end, interval.ended_at or now)\n",
        "        stop = min(end, interval.ended_at or interval.started_at)\n",
        64,
    ),
    Mutant(
        "a budget is told of too early",
        MODEL + "budget.py",
        "if spent_micros * 100 >= amount_micros * percent",
        "if spent_micros * 150 >= amount_micros * percent",
        104,
    ),
    Mutant(
        "nobody is told that all of a budget is spent",
        MODEL + "budget.py",
        "ALERTS = (50, 80, 100)",
        "ALERTS = (50, 80)",
        72,
    ),
    Mutant(
        "a project's own priorities count for nothing",
        MODEL + "queue.py",
        "key=lambda item: (-item.priority, item.created_at, item.group_id)",
        "key=lambda item: (item.created_at, item.group_id)",
        1088,
    ),
    Mutant(
        "the last in a project is the first",
        MODEL + "queue.py",
        "key=lambda item: (-item.priority, item.created_at, item.group_id)",
        "key=lambda item: (item.priority, item.created_at, item.group_id)",
        264,
    ),
    Mutant(
        "the number of machines is not looked at",
        CONTROL + "operations/quota.py",
        "    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: count}\n",
        "    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: 0}\n",
        64,
    ),
    Mutant(
        "a group counts as one machine",
        CONTROL + "operations/quota.py",
        "    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: count}\n",
        "    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: 1}\n",
        208,
    ),
    Mutant(
        "GPU hours are not looked at",
        CONTROL + "operations/quota.py",
        " or (standing.kind not in more and standing.exceeded_by(0)):",
        ":",
        128,
    ),
    Mutant(
        "the last GPU hour may be used again",
        MODEL + "quota.py",
        "        return self.used >= self.most if self.kind == GPU_HOURS",
        "        return self.used > self.most if self.kind == GPU_HOURS",
        128,
    ),
    Mutant(
        "who has GPU hours left has to wait",
        MODEL + "quota.py",
        "        return self.used >= self.most if self.kind == GPU_HOURS",
        "        return self.used + 9 >= self.most if self.kind == GPU_HOURS",
        64,
    ),
)
_BETWEEN_PROJECTS = (  # nobody's quota is in the way there
    Mutant(
        "who asks first is first, whatever their project has used",
        MODEL + "queue.py",
        "key=lambda item: (used[item], waiting[item][0].created_at, item))",
        "key=lambda item: (waiting[item][0].created_at, item))",
        73,
        range(1, 97, 8),
    ),
    Mutant(
        "a higher priority passes the other projects",
        MODEL + "queue.py",
        "key=lambda item: (used[item], waiting[item][0].created_at, item))",
        "key=lambda item: (-waiting[item][0].priority, used[item], waiting[item][0].created_at, item))",
        151,
        range(7, 247, 8),
    ),
)
ACCOUNTED = (*(replace(mutant, search=_more(mutant)) for mutant in _PLANTED), *_BETWEEN_PROJECTS)
