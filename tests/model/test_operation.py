from typing import Any

import pytest

from gpuaas.model.operation import LAUNCH, begin, delivered, done, fresh_phases

SENT, NOW = 100.0, 101.0


def sent() -> list[dict[str, Any]]:
    return begin(done(fresh_phases(LAUNCH, SENT), "place", SENT), "deliver", SENT)


def ends(*began: float | None) -> float:
    steps = [{"name": "rootfs", "started_at": each} for each in began]
    return next(phase["finished_at"] for phase in delivered(sent(), steps, NOW) if phase["name"] == "deliver")


@pytest.mark.parametrize(
    ("began", "end"),
    [
        pytest.param([100.2, 100.4, None], 100.2, id="with the node's first step"),
        pytest.param([], NOW, id="with its report, if it has begun nothing"),
        pytest.param([90.0], SENT, id="not before it began, whatever the node's clock says"),
        pytest.param([500.0], NOW, id="not in the future"),
    ],
)
def test_a_spec_is_delivered(began: list[float | None], end: float) -> None:
    assert ends(*began) == end
