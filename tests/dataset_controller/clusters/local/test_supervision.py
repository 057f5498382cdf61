"""What to do about a worker process, by time alone."""

from typing import Any

import pytest

from dataset_controller.clusters.local.supervision import (
    HUNG_AFTER,
    SETTLED_AFTER,
    SILENT_AFTER,
    Seen,
    backoff,
    failures_after,
    next_step,
    state_of,
)


def seen(**fields: Any) -> Seen:
    values: dict[str, Any] = {
        "now": 1000.0,
        "alive": True,
        "started": 900.0,
        "ended": 0.0,
        "heard": 999.5,
        "failures": 0,
    }
    return Seen(**(values | fields))


@pytest.mark.parametrize(
    ("fields", "state", "step"),
    [
        ({}, "ready", "wait"),
        ({"heard": 1000 - SILENT_AFTER - 0.1}, "silent", "wait"),
        ({"heard": 1000 - HUNG_AFTER - 0.1}, "silent", "kill"),
        ({"heard": 0.0, "started": 999.0}, "starting", "wait"),
        ({"heard": 0.0, "started": 1000 - HUNG_AFTER - 0.1}, "starting", "kill"),
        ({"heard": 0.0, "started": 999.0, "failures": 1}, "restarting", "wait"),
        ({"alive": False, "heard": 0.0, "ended": 999.9, "failures": 1}, "restarting", "wait"),
        ({"alive": False, "heard": 0.0, "ended": 999.7, "failures": 1}, "restarting", "start"),
        ({"alive": False, "heard": 0.0, "ended": 999.7, "failures": 4}, "restarting", "wait"),
        ({"alive": False, "stopping": True}, "stopped", "wait"),
        ({"heard": 0.0, "started": 0.0, "stopping": True}, "stopped", "wait"),
    ],
)
def test_state_and_step(fields: dict[str, Any], state: str, step: str) -> None:
    assert (state_of(seen(**fields)), next_step(seen(**fields))) == (state, step)


def test_back_off_doubles_and_a_long_life_makes_deaths_forgotten() -> None:
    assert [backoff(count) for count in (0, 1, 2, 3, 50)] == [0.2, 0.2, 0.4, 0.8, 30.0]
    assert failures_after(seen(started=999.0, failures=3)) == 4
    assert failures_after(seen(started=1000 - SETTLED_AFTER - 1, failures=3)) == 1
