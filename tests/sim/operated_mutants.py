"""Planted bugs in what operators and leads do: drains, pools, quotas, the line, people, money."""

from .planted import CONTROL, Mutant

OPERATED = (
    Mutant(
        "groups are placed on drained nodes",
        CONTROL + "placement/filters.py",
        "    being_drained,\n",
        "",
        7,
    ),
    Mutant(
        "a quarantined slot is given out",
        CONTROL + "placement/filters.py",
        '    if slot.state == "quarantined":\n        return',
        '    if slot.state == "quarantined":\n        return None\n        return',
        8,
    ),
    Mutant(
        "a drain does not wait for its deadline",
        CONTROL + "store/drains.py",
        '_DUE = "deadline <= %(now)s"',
        "_DUE = \"deadline - interval '1 minute' <= %(now)s\"",
        71,
    ),
    Mutant(
        "who is on a drained node is not told",
        CONTROL + "operations/drain.py",
        "if item is not None and item.state in MUST_GO]",
        'if item is not None and item.state == "failed"]',
        1,
    ),
    Mutant(
        "a node that is no longer drained stays closed",
        CONTROL + "store/drains.py",
        '    capacity.changed(tx, node_id)\n    tx.wake("placement")',
        '    tx.wake("placement")',
        1,
    ),
    Mutant(
        "groups are placed in another tenant's pool",
        CONTROL + "placement/filters.py",
        "    other_tenants_pool,\n",
        "",
        7,
    ),
    Mutant(
        "a node becomes a pool while others are on it",
        CONTROL + "app/slots.py",
        "    if org and others:\n",
        "    if org and len(others) > 1:\n",
        10,
    ),
    Mutant(
        "two launches look at a quota at once",
        CONTROL + "store/quotas.py",
        "    FOR NO KEY UPDATE\n",
        "",
        194,
    ),
    Mutant(
        "the quota of an organisation is not looked at",
        CONTROL + "operations/quota.py",
        '(("project", project_id), ("org", org_id))',
        '(("project", project_id),)',
        41,
    ),
    Mutant(
        "who has waited is not held to any quota",
        CONTROL + "operations/launch.py",
        "    if over := quota.exceeded(tx, first.org_id, first.project_id, offer, len(group), free_at=need.free_at):",
        "    if over := [] and [(first, True)]:",
        6,
    ),
    Mutant(
        "what is being made does not count against a quota",
        CONTROL + "store/quotas.py",
        "ON o.id = a.offer_id\n    WHERE a.{scope}_id = %(owner_id)s AND a.node_id IS NOT NULL",
        "ON o.id = a.offer_id\n    WHERE a.{scope}_id = %(owner_id)s AND a.active_at IS NOT NULL",
        6,
    ),
    Mutant(
        "what waits for its quota keeps nodes from others",
        CONTROL + "operations/waiting.py",
        "    if _blocked_by_quota(found) or ticket.preemptible:",
        "    if ticket.preemptible:",
        10,
    ),
    Mutant(
        "no node is kept for the first in line",
        CONTROL + "operations/waiting.py",
        "    elif first:\n        _hold(",
        "    elif not first:\n        _hold(",
        2,
    ),
)
