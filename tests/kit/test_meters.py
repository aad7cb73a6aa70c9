"""Counting and timing: totals, buckets, ages, and a bound on labels that somebody made up."""

from gpuaas.kit.meters import AGE, COUNTER, HISTOGRAM, MOST_SERIES, Family, Meters


def meters() -> Meters:
    return Meters(
        {
            "made_total": Family(COUNTER, "Made", ("kind",)),
            "took_seconds": Family(HISTOGRAM, "Took", (), (0.1, 1.0)),
            "age_seconds": Family(AGE, "Age", ("what",)),
        }
    )


def test_counters_add_up_by_label() -> None:
    found = meters()
    found.add("made_total", kind="a")
    found.add("made_total", 2, kind="a")
    found.add("made_total", kind="b")
    assert list(found.lines("made_total")) == [("", {"kind": "a"}, 3.0), ("", {"kind": "b"}, 1.0)]


def test_buckets_are_cumulative_and_an_edge_belongs_below() -> None:
    found = meters()
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        found.observe("took_seconds", value)
    assert list(found.lines("took_seconds")) == [
        ("_bucket", {"le": "0.1"}, 2),
        ("_bucket", {"le": "1"}, 4),
        ("_bucket", {"le": "+Inf"}, 5),
        ("_sum", {}, 8.65),
        ("_count", {}, 5),
    ]


def test_ages_are_seconds_since_the_mark() -> None:
    found = meters()
    found.mark("age_seconds", what="x")
    ((_, labels, age),) = found.lines("age_seconds")
    assert labels == {"what": "x"}
    assert 0 <= age < 5
    assert 0 <= found.ages("age_seconds")[("x",)] < 5


def test_series_are_bounded() -> None:
    found = meters()
    for number in range(MOST_SERIES * 3):
        found.add("made_total", kind=f"k{number}")
    lines = list(found.lines("made_total"))
    assert len(lines) == MOST_SERIES + 1
    assert ("", {"kind": "other"}, MOST_SERIES * 2.0) in lines
