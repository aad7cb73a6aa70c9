"""What this process has counted and timed since it started. In memory only: whoever scrapes keeps the past."""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

COUNTER, GAUGE, HISTOGRAM, AGE = "counter", "gauge", "histogram", "age"
MOST_SERIES = 200  # of one family; what comes on top is counted under OTHER, whoever made up its labels
OTHER = "other"

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """`age`: a gauge that says how many seconds ago something was marked."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass
class Series:
    value: float = 0.0
    count: int = 0
    buckets: list[int] = field(default_factory=list)


class Meters:
    def __init__(self, families: Mapping[str, Family]) -> None:
        self.families = families
        self._series: dict[str, dict[Labels, Series]] = {name: {} for name in families}
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        with self._lock:
            self._of(name, labels).value += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        buckets = self.families[name].buckets
        with self._lock:
            series = self._of(name, labels)
            if not series.buckets:
                series.buckets = [0] * (len(buckets) + 1)
            series.buckets[bisect_left(buckets, value)] += 1
            series.value += value
            series.count += 1

    def mark(self, name: str, **labels: str) -> None:
        with self._lock:
            self._of(name, labels).value = time.monotonic()

    def ages(self, name: str) -> dict[Labels, float]:
        now = time.monotonic()
        with self._lock:
            return {labels: now - series.value for labels, series in self._series[name].items()}

    def lines(self, name: str) -> Iterator[tuple[str, dict[str, str], float]]:
        """(suffix, labels, value) as Prometheus has them."""
        family, now = self.families[name], time.monotonic()
        with self._lock:
            found = [(labels, Series(s.value, s.count, list(s.buckets))) for labels, s in self._series[name].items()]
        for values, series in sorted(found, key=lambda item: item[0]):
            labels = dict(zip(family.labels, values, strict=True))
            if family.kind == HISTOGRAM:
                total = 0
                for bound, count in zip((*family.buckets, float("inf")), series.buckets, strict=True):
                    total += count
                    yield "_bucket", {**labels, "le": "+Inf" if bound == float("inf") else f"{bound:g}"}, total
                yield "_sum", labels, series.value
                yield "_count", labels, series.count
            else:
                yield "", labels, now - series.value if family.kind == AGE else series.value

    def _of(self, name: str, labels: Mapping[str, str]) -> Series:
        known = self._series[name]
        key = tuple(labels[label] for label in self.families[name].labels)
        if key not in known and len(known) >= MOST_SERIES:
            key = tuple(OTHER for _ in key)
        return known.get(key) or known.setdefault(key, Series())
