"""The decision: tables of what is seen and what follows, and properties that hold for anything seen."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_controller.actions import Forget, LookAgain, PublishMembership, TakeSnapshot
from dataset_controller.membership import EXPELLED_AFTER, desired_access
from dataset_controller.observed import Observed
from dataset_controller.reconcile import CHANGE_GAP, change_gap, reconcile
from dataset_controller.resources import Dataset, DatasetStatus
from tests.dataset_controller.build import (
    NOW,
    dataset,
    failure,
    observed,
    published,
    snapshot,
    taking,
    worker,
    workers,
)

DEMO = dataset()
OTHER_MOUNTS = dataset(url="file:///other")


def status_of(seen: Observed) -> DatasetStatus:
    status = reconcile(seen)[1]
    assert status is not None
    return status


def takes(seen: Observed) -> bool:
    return any(isinstance(action, TakeSnapshot) for action in reconcile(seen)[0])


def looks_after(seen: Observed) -> float | None:
    return next((action.after for action in reconcile(seen)[0] if isinstance(action, LookAgain)), None)


def reasons(status: DatasetStatus) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in status.conditions}


@pytest.mark.parametrize(
    ("seen", "phase", "reason"),
    [
        (observed(DEMO), "Pending", "NotYet"),
        (observed(DEMO, taking=taking(DEMO)), "Snapshotting", "Listing"),
        (observed(DEMO, failure=failure(DEMO)), "Pending", "SourceUnavailable"),
        (observed(DEMO, failure=failure(DEMO, "SourceDenied", retryable=False)), "Failed", "SourceDenied"),
        (observed(DEMO, failure=failure(DEMO, "SourceEmpty", retryable=False)), "Failed", "SourceEmpty"),
        (observed(DEMO, failure=failure(DEMO, "ListingTruncated")), "Pending", "ListingTruncated"),
        (observed(DEMO, failure=failure(OTHER_MOUNTS, "SourceDenied", retryable=False)), "Pending", "NotYet"),
        (observed(DEMO, snapshot=snapshot(DEMO)), "Ready", "Ready"),
        (observed(DEMO, snapshot=snapshot(DEMO), failure=failure(DEMO)), "Ready", "Ready"),
        (observed(DEMO, snapshot=snapshot(OTHER_MOUNTS)), "Pending", "NotYet"),
        (observed(DEMO, snapshot=snapshot(OTHER_MOUNTS), taking=taking(DEMO)), "Snapshotting", "Listing"),
        (
            observed(DEMO, snapshot=snapshot(OTHER_MOUNTS), failure=failure(DEMO)),
            "Degraded",
            "SourceUnavailable",
        ),
        (
            observed(DEMO, snapshot=snapshot(DEMO), workers=(worker(0), worker(1, "silent", silent_for=4.0))),
            "Degraded",
            "WorkersLost",
        ),
        (observed(DEMO, snapshot=snapshot(DEMO), workers=(worker(0, "restarting"),)), "Degraded", "NoWorkers"),
        (
            observed(DEMO, snapshot=snapshot(DEMO), workers=(worker(0, "starting", url=""),)),
            "Pending",
            "WorkersStarting",
        ),
        (observed(dataset(replicas=5), snapshot=snapshot(DEMO)), "Degraded", "TooFewWorkers"),
        (observed(dataset(replicas=2), snapshot=snapshot(DEMO)), "Ready", "Ready"),
    ],
)  # fmt: skip
def test_phase_and_reason(seen: Observed, phase: str, reason: str) -> None:
    status = status_of(seen)
    assert (status.phase, reasons(status)["Ready"][1]) == (phase, reason)
    assert (reasons(status)["Ready"][0] == "True") == (phase == "Ready")


@pytest.mark.case("A24")
def test_a_denied_listing_is_neither_empty_nor_ready() -> None:
    status = status_of(observed(DEMO, failure=failure(DEMO, "SourceDenied", retryable=False)))
    assert (status.phase, status.snapshot) == ("Failed", None)
    assert reasons(status)["SnapshotTaken"] == ("False", "SourceDenied")


RULES: dict[str, dict[str, Any]] = {
    "never": {"refresh": "never"},
    "onChange": {"refresh": "onChange"},
    "interval": {"refresh": "interval", "interval": "5m"},
}


def ruled(rule: str) -> Dataset:
    return dataset(snapshot=RULES[rule])


@pytest.mark.parametrize(
    ("rule", "fields", "expected"),
    [
        ("never", {}, True),
        ("never", {"taking": taking(DEMO)}, False),
        ("never", {"taking": taking(OTHER_MOUNTS)}, True),
        ("never", {"snapshot": snapshot(DEMO)}, False),
        ("never", {"snapshot": snapshot(OTHER_MOUNTS)}, True),
        ("never", {"snapshot": snapshot(DEMO), "changed_at": NOW - 1}, False),
        ("never", {"snapshot": snapshot(DEMO), "asked_at": NOW}, True),
        ("never", {"snapshot": snapshot(DEMO), "asked_at": NOW, "taking": taking(DEMO)}, False),
        ("never", {"snapshot": snapshot(DEMO), "asked_at": NOW - 200}, False),
        ("onChange", {"snapshot": snapshot(DEMO)}, False),
        ("onChange", {"snapshot": snapshot(DEMO), "changed_at": NOW - 1}, True),
        ("onChange", {"snapshot": snapshot(DEMO), "changed_at": NOW - 200}, False),
        ("onChange", {"snapshot": snapshot(DEMO, began=NOW - 2), "changed_at": NOW - 1}, False),
        ("onChange", {"snapshot": snapshot(DEMO, began=NOW - 12), "changed_at": NOW - 1, "fruitless": 2}, False),
        ("onChange", {"snapshot": snapshot(DEMO, began=NOW - 21), "changed_at": NOW - 1, "fruitless": 2}, True),
        ("interval", {"snapshot": snapshot(DEMO)}, False),
        ("interval", {"snapshot": snapshot(DEMO, began=NOW - 300)}, True),
        ("never", {"failure": failure(DEMO, at=NOW - 0.5)}, False),
        ("never", {"failure": failure(DEMO, at=NOW - 1.5)}, True),
        ("never", {"failure": failure(DEMO, at=NOW - 1.5, attempts=2)}, False),
        ("never", {"failure": failure(DEMO, at=NOW - 1.5, retry_after=60.0)}, False),
        ("never", {"failure": failure(DEMO, at=NOW - 1e6, retryable=False)}, False),
        ("never", {"failure": failure(DEMO, at=NOW - 1, retryable=False), "asked_at": NOW}, True),
        ("never", {"failure": failure(OTHER_MOUNTS, at=NOW, retryable=False)}, True),
        ("interval", {"failure": failure(DEMO, at=NOW - 301, retryable=False)}, True),
        ("interval", {"failure": failure(DEMO, at=NOW - 299, retryable=False)}, False),
    ],
)
def test_when_a_snapshot_is_taken(rule: str, fields: dict[str, Any], expected: bool) -> None:
    assert takes(observed(ruled(rule), **fields)) is expected


@pytest.mark.parametrize(
    ("seen", "after"),
    [
        (observed(ruled("interval"), snapshot=snapshot(DEMO)), 200.0),
        (observed(ruled("never"), snapshot=snapshot(DEMO)), None),
        (observed(ruled("never"), failure=failure(DEMO, at=NOW, attempts=4)), 8.0),
        (observed(ruled("onChange"), snapshot=snapshot(DEMO, began=NOW - 2), changed_at=NOW), CHANGE_GAP - 2),
        (
            observed(
                ruled("never"), snapshot=snapshot(DEMO), workers=(worker(0), worker(1, "silent", silent_for=10.0))
            ),
            EXPELLED_AFTER - 10,
        ),
    ],
)
def test_when_to_look_again_by_the_clock(seen: Observed, after: float | None) -> None:
    assert looks_after(seen) == (pytest.approx(after + 0.01) if after is not None else None)


def test_a_reader_with_an_old_manifest_cannot_make_us_list_without_end() -> None:
    assert [change_gap(count) for count in (0, 1, 2, 100)] == [5.0, 10.0, 20.0, 600.0]


def test_numbers_of_the_status() -> None:
    seen = observed(
        dataset(owners=2),
        snapshot=snapshot(DEMO, files=3, bytes=1000),
        workers=(worker(0, cached=900, near=7), worker(1, cached=1099)),
    )
    status = status_of(seen)
    assert (status.files, status.bytes, status.cached_bytes, status.near_bytes) == (3, 1000, 1999, 7)
    assert status.cached_ratio == 99
    assert (status.workers.ready, status.workers.total) == (2, 2)


@pytest.mark.parametrize(("cached", "size", "ratio"), [(0, 0, 100), (0, 10, 0), (10, 10, 100), (30, 10, 100)])
def test_cached_ratio_at_its_edges(cached: int, size: int, ratio: int) -> None:
    seen = observed(DEMO, snapshot=snapshot(DEMO, bytes=size), workers=(worker(0, cached=cached),))
    assert status_of(seen).cached_ratio == ratio


def test_a_change_at_the_source_is_told_whatever_the_rule() -> None:
    seen = observed(ruled("never"), snapshot=snapshot(DEMO), changed_at=NOW - 1)
    status = status_of(seen)
    assert status.phase == "Ready"
    assert reasons(status)["SnapshotCurrent"] == ("False", "ObjectChanged")
    message = next(one.message for one in status.conditions if one.type == "SnapshotCurrent")
    assert message.endswith("spec.snapshot.refresh is never: run `forebay refresh demo`")


def test_transition_times_move_only_with_the_condition() -> None:
    early = status_of(observed(DEMO, now=NOW))
    later = observed(DEMO, now=NOW + 60, conditions=tuple(early.conditions))
    assert status_of(later).conditions == early.conditions
    ready = status_of(replace(later, snapshot=snapshot(DEMO)))
    before = {one.type: one.last_transition_time for one in early.conditions}
    moved = {one.type for one in ready.conditions if before.get(one.type) != one.last_transition_time}
    assert moved == {"Ready", "SnapshotTaken", "SnapshotCurrent", "NamesShown"}


@pytest.mark.case("A07")
@pytest.mark.parametrize(("hidden", "unshowable"), [(2, 0), (0, 3)])
def test_files_that_no_directory_shows_are_counted_in_a_condition(hidden: int, unshowable: int) -> None:
    seen = observed(DEMO, snapshot=snapshot(DEMO, hidden=hidden, unshowable=unshowable))
    status = status_of(seen)
    assert reasons(status)["NamesShown"] == ("False", "SomeNotShown")
    message = next(one.message for one in status.conditions if one.type == "NamesShown")
    assert message.startswith(f"{hidden + unshowable} of 10 files are in no directory: {hidden} have the name of a")


def test_a_deleted_dataset_is_forgotten() -> None:
    assert reconcile(observed(None)) == ([Forget("demo")], None)


def test_publishing_is_done_once() -> None:
    seen = observed(DEMO, snapshot=snapshot(DEMO))
    (publish,) = [action for action in reconcile(seen)[0] if isinstance(action, PublishMembership)]
    again = replace(seen, published=published(publish.access))
    assert not any(isinstance(action, PublishMembership) for action in reconcile(again)[0])


SPECS = st.builds(
    dataset,
    url=st.sampled_from(["file:///data", "file:///other"]),
    replicas=st.sampled_from([None, 1, 2, 4]),
    snapshot=st.sampled_from(list(RULES.values())),
)
MOUNTS = st.sampled_from([DEMO, OTHER_MOUNTS])
TIMES = st.floats(NOW - 1000, NOW)
WORKERS = st.lists(
    st.tuples(st.sampled_from(["starting", "ready", "silent", "restarting"]), st.floats(0, 60), st.integers(0, 2000)),
    min_size=1,
    max_size=4,
).map(
    lambda rows: tuple(
        worker(number, state, silent_for=0.1 if state == "ready" else silent, cached=cached)
        for number, (state, silent, cached) in enumerate(rows)
    )
)
SEEN = st.builds(
    observed,
    SPECS,
    snapshot=st.none() | st.builds(snapshot, MOUNTS, began=TIMES),
    failure=st.none() | st.builds(failure, MOUNTS, retryable=st.booleans(), attempts=st.integers(1, 40), at=TIMES),
    taking=st.none() | st.builds(taking, MOUNTS, began=TIMES),
    workers=WORKERS,
    changed_at=st.just(0.0) | TIMES,
    asked_at=st.just(0.0) | TIMES,
    fruitless=st.integers(0, 50),
)


@given(SEEN)
def test_the_status_is_a_function_of_what_is_seen(seen: Observed) -> None:
    status = status_of(seen)
    carried = replace(seen, conditions=tuple(status.conditions))
    assert reconcile(seen) == reconcile(seen)
    assert status_of(carried) == status


@given(SEEN)
def test_ready_means_a_snapshot_of_these_mounts_and_every_worker(seen: Observed) -> None:
    status = status_of(seen)
    assert seen.dataset is not None
    whole = seen.snapshot is not None and seen.snapshot.mounts == seen.dataset.spec.mount_access()
    everybody = status.workers.ready >= status.workers.total
    assert (status.phase == "Ready") == (whole and everybody)
    assert 0 <= status.cached_ratio <= 100


@given(SEEN)
def test_whoever_is_not_ready_is_looked_at_again_or_waits_for_something_that_tells(seen: Observed) -> None:
    """No state is a dead end by accident: work is asked for, the clock is set, or somebody will report."""
    actions, status = reconcile(seen)
    assert status is not None
    told_by = bool(seen.taking) or any(one.state != "ready" for one in seen.workers)
    hopeless = seen.current_failure is not None and not seen.current_failure.retryable
    few = "TooFewWorkers" in {one.reason for one in status.conditions}
    moves = any(isinstance(action, TakeSnapshot | LookAgain) for action in actions)
    assert status.phase == "Ready" or moves or told_by or hopeless or few


@given(SEEN)
def test_it_converges_whatever_came_before(seen: Observed) -> None:
    """Carry out what is asked, let listings succeed and workers answer: soon nothing is asked for any more."""
    assert seen.dataset is not None
    recovered = tuple(replace(one, state="ready", silent_for=0.1) for one in seen.workers)
    now = replace(seen, workers=recovered, asked_at=NOW + 1)
    for step in range(4):
        now = carry_out(now, NOW + 2 + step)
    actions, status = reconcile(now)
    assert [action for action in actions if not isinstance(action, LookAgain)] == []
    assert status is not None
    assert status.phase == ("Ready" if status.workers.ready >= status.workers.total else "Degraded")


def carry_out(seen: Observed, when: float) -> Observed:
    seen = replace(seen, now=when)
    actions, status = reconcile(seen)
    assert seen.dataset is not None
    assert status is not None
    if seen.taking:
        taken = snapshot(seen.dataset, began=seen.taking.began)
        seen = replace(seen, taking=None, failure=None, snapshot=replace(taken, mounts=seen.taking.mounts))
    for action in actions:
        if isinstance(action, TakeSnapshot):
            seen = replace(seen, taking=replace(taking(seen.dataset, when), mounts=action.mounts))
        elif isinstance(action, PublishMembership):
            seen = replace(seen, published=published(action.access))
    return replace(seen, conditions=tuple(status.conditions))


@given(SEEN, st.permutations(range(4)))
def test_the_order_of_workers_does_not_matter(seen: Observed, order: list[int]) -> None:
    shuffled = tuple(seen.workers[index] for index in order if index < len(seen.workers))
    again = replace(seen, workers=shuffled)
    assert seen.dataset is not None
    assert desired_access(seen.dataset, seen) == desired_access(seen.dataset, again)
    first, second = status_of(seen), status_of(again)
    assert (first.phase, first.workers, first.cached_bytes) == (second.phase, second.workers, second.cached_bytes)


def test_workers_by_number() -> None:
    assert [one.id for one in workers(2)] == ["w0", "w1"]
