"""What the rows of a machine mean for its spec."""

from datetime import UTC, datetime, timedelta

from gpuaas.model.runtime import AllocationRuntime, RuntimeBundle, shown

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(slug: str, version: str, state: str, minute: int = 0, applied: bool = True) -> AllocationRuntime:
    at = NOON + timedelta(minutes=minute)
    return AllocationRuntime(
        f"ar-{minute}", "al-1", f"rb-{slug}-{version}", slug, version, "apply", None, state, "ready", None, "", "op-1",
        "us-1", at, at if applied else None, None, None,
    )  # fmt: skip


def both(*rows: AllocationRuntime) -> list[tuple[AllocationRuntime, RuntimeBundle]]:
    return [
        (each, RuntimeBundle(each.bundle_id, None, each.slug, each.version, "amd64", "", "", "any", "supported", False,
                             f"digest of {each.version}", 1, {}, "published", "us-1", NOON, NOON, None))
        for each in rows
    ]  # fmt: skip


def said(*rows: AllocationRuntime) -> list[tuple[str, str, bool]]:
    return [(each.slug, each.version, each.current) for each in shown(both(*rows))]


def test_what_is_wanted_is_current_and_what_is_there_lies_beside_it() -> None:
    rows = row("torch", "1", "kept", 1), row("torch", "2", "applied", 2), row("torch", "3", "applying", 3, False)
    assert said(*rows) == [("torch", "3", True), ("torch", "2", False), ("torch", "1", False)]


def test_without_the_wish_the_one_before_is_current_again() -> None:
    assert said(row("torch", "1", "kept", 1), row("torch", "2", "applied", 2)) == [
        ("torch", "2", True),
        ("torch", "1", False),
    ]


def test_a_version_is_said_once_however_often_it_was_wanted() -> None:
    rows = row("torch", "1", "kept", 1), row("torch", "2", "applied", 2), row("torch", "1", "applying", 3, False)
    assert said(*rows) == [("torch", "1", True), ("torch", "2", False)]


def test_every_bundle_has_a_current_version_of_its_own() -> None:
    assert said(row("torch", "2", "applied", 2), row("jupyter", "4", "applying", 3, False)) == [
        ("jupyter", "4", True),
        ("torch", "2", True),
    ]


def test_when_it_was_applied_stays_the_same_while_another_comes_and_goes() -> None:
    there = row("torch", "1", "applied", 1)
    alone, beside = shown(both(there)), shown(both(there, row("torch", "2", "applying", 2, False)))
    assert alone[0].applied_at == beside[1].applied_at == NOON + timedelta(minutes=1)
