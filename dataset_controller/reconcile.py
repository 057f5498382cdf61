"""The one decision of the controller: what is observed of a Dataset -> what to do, and what to say of it.

Pure: no clock, no store, no memory of earlier calls. Called again with whatever is true then, in any order and as
often as one likes, it asks for the same things. `judgement.py` words the status, `membership.py` the document that
readers get, `controller.py` carries the actions out.
"""

from __future__ import annotations

from dataset_controller.actions import Action, Forget, LookAgain, PublishMembership, TakeSnapshot
from dataset_controller.judgement import judge
from dataset_controller.membership import EXPELLED_AFTER, desired_access, is_published
from dataset_controller.observed import Failure, Observed, Snapshot
from dataset_controller.resources import Dataset, DatasetStatus

RETRY_FIRST = 1.0
RETRY_MOST = 300.0
"""Seconds between tries at a source that may come back: 1, 2, 4 ... 300."""
CHANGE_GAP = 5.0
"""Seconds between snapshots because of change reports; doubled after each that found nothing new, since a reader
that still holds the old manifest reports the same change again and again."""
CHANGE_GAP_MOST = 600.0
EDGE = 0.01
"""Seconds added to a wake-up, so that it does not come a rounding error too early."""


def reconcile(observed: Observed) -> tuple[list[Action], DatasetStatus | None]:
    """Actions in the order to carry them out, and the status; None for a Dataset that is gone."""
    dataset = observed.dataset
    if dataset is None:
        return [Forget(observed.name)], None
    actions: list[Action] = []
    because = _why_snapshot(dataset, observed)
    due = _due(dataset, observed) if because else None
    if due is not None and due <= observed.now:
        actions.append(TakeSnapshot(dataset.spec.mount_access(), because))
    desired = desired_access(dataset, observed)
    if not is_published(desired, observed.published):
        actions.append(PublishMembership(desired))
    if wake := _wake(observed, due):
        actions.append(LookAgain(wake + EDGE))
    return actions, judge(dataset, observed)


def retry_at(failure: Failure) -> float | None:
    """When to try again after a failure; None where only a person can help."""
    if not failure.retryable:
        return None
    delay = float(min(RETRY_MOST, RETRY_FIRST * 2 ** min(failure.attempts - 1, 16)))
    return failure.at + max(delay, failure.retry_after or 0.0)


def change_gap(fruitless: int) -> float:
    """Seconds from one snapshot to the next that a change report may cause."""
    return float(min(CHANGE_GAP_MOST, CHANGE_GAP * 2 ** min(fruitless, 16)))


def _why_snapshot(dataset: Dataset, observed: Observed) -> str:
    """Why the snapshot is not what it should be; empty where it is, or where the right one is being taken."""
    mounts, snapshot = dataset.spec.mount_access(), observed.snapshot
    if observed.taking and observed.taking.mounts == mounts:
        return ""
    if snapshot is None:
        return "there is none yet"
    if snapshot.mounts != mounts:
        return "the mounts have changed"
    if observed.asked_at > snapshot.began:
        return "somebody asked for it"
    if dataset.spec.snapshot.refresh == "onChange" and observed.changed_at > snapshot.began:
        return "an object has changed at the source"
    if dataset.spec.snapshot.refresh == "interval":
        return "the interval has passed"
    return ""


def _due(dataset: Dataset, observed: Observed) -> float | None:
    """When the snapshot that is wanted may be taken; None for never without a person."""
    failure, asked = observed.current_failure, observed.asked_at
    if failure and asked <= failure.at:
        again = retry_at(failure)
        if again is None and dataset.spec.snapshot.refresh == "interval":
            again = failure.at + dataset.spec.snapshot.interval
        return again
    if failure or observed.snapshot is None:
        return observed.now
    return _due_after(dataset, observed, observed.snapshot)


def _due_after(dataset: Dataset, observed: Observed, snapshot: Snapshot) -> float:
    rule = dataset.spec.snapshot
    if snapshot.mounts != dataset.spec.mount_access() or observed.asked_at > snapshot.began:
        return observed.now
    if rule.refresh == "interval":
        return snapshot.began + rule.interval
    return snapshot.began + change_gap(observed.fruitless)


def _wake(observed: Observed, due: float | None) -> float | None:
    """Seconds until something changes by the clock alone."""
    waits = [due - observed.now] if due is not None and due > observed.now else []
    absent = [worker.silent_for for worker in observed.workers if worker.state != "ready"]
    waits += [EXPELLED_AFTER - silent for silent in absent if silent < EXPELLED_AFTER]
    return min(waits, default=None)
