"""The status of a Dataset in words and numbers: a function of what is observed now, never of how it came about.

Each condition answers one question; `Ready` sums them up with the reason of the first that is wrong. Only the times
of transition come from the stored status.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cache_engine.output import count
from cache_engine.sizes import format_size
from dataset_controller.membership import chosen, wanted
from dataset_controller.observed import Failure, Observed, Snapshot
from dataset_controller.resources import Condition, Dataset, DatasetStatus, SnapshotStatus, WorkersStatus
from dataset_controller.resources.dataset import Phase
from dataset_controller.worker_seen import WorkerSeen

Verdict = tuple[bool, str, str]
"""Whether it is so, the reason in one word, the message in numbers."""


def timestamp(seconds: float) -> str:
    """Seconds since the epoch -> 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def judge(dataset: Dataset, observed: Observed) -> DatasetStatus:
    """The whole status."""
    snapshot = observed.snapshot
    owners = chosen(dataset, observed)
    taken = _taken(dataset, observed)
    current = _current(dataset, observed)
    workers = _workers(dataset, observed, owners)
    phase, ready = _phase(observed, taken, workers)
    verdicts = {"Ready": ready, "SnapshotTaken": taken, "SnapshotCurrent": current, "WorkersReady": workers}
    if snapshot:
        verdicts["NamesShown"] = _names(snapshot)
    size = snapshot.bytes if snapshot else 0
    cached = sum(worker.cached for worker in observed.workers)
    return DatasetStatus.model_validate(
        {
            "observedGeneration": dataset.metadata.generation,
            "phase": phase,
            "files": snapshot.files if snapshot else 0,
            "bytes": size,
            "cachedBytes": cached,
            "nearBytes": sum(worker.near for worker in observed.workers),
            "cachedRatio": _percent(cached, size * dataset.spec.owners) if snapshot else 0,
            "snapshot": _snapshot_status(snapshot) if snapshot else None,
            "workers": WorkersStatus(
                ready=sum(worker.state == "ready" for worker in owners),
                total=wanted(observed.workers, dataset.spec.replicas),
            ),
            "conditions": [_condition(kind, verdict, observed) for kind, verdict in verdicts.items()],
        }
    )


def _taken(dataset: Dataset, observed: Observed) -> Verdict:
    """Is there a snapshot of the mounts that the Dataset has now?"""
    snapshot, failure = observed.snapshot, observed.current_failure
    mounts = dataset.spec.mount_access()
    if snapshot and snapshot.mounts == mounts:
        size = format_size(snapshot.bytes)
        return True, "Taken", f"{count(snapshot.files, 'file')}, {size}, taken at {timestamp(snapshot.began)}"
    old = f"; still served: {count(snapshot.files, 'file')} of the mounts before" if snapshot else ""
    if failure:
        return False, failure.reason, f"{failure.message}; {_tries(failure)}{old}"
    if observed.taking and observed.taking.mounts == mounts:
        return False, "Listing", f"listing {count(len(mounts), 'mount')} since {timestamp(observed.taking.began)}{old}"
    return False, "NotYet", f"no snapshot of {count(len(mounts), 'mount')} yet{old}"


def _current(dataset: Dataset, observed: Observed) -> Verdict:
    """Is the snapshot what the source has, as far as anybody knows?"""
    snapshot, failure = observed.snapshot, observed.current_failure
    if snapshot is None or snapshot.mounts != dataset.spec.mount_access():
        return False, "NoSnapshot", "there is no snapshot of these mounts"
    if failure and failure.at > snapshot.began:
        return False, failure.reason, f"{failure.message}; {_tries(failure)}; the snapshot before is still served"
    if observed.changed_at > snapshot.began:
        when = timestamp(observed.changed_at)
        cure = _cure(dataset, observed)
        return False, "ObjectChanged", f"an object changed at the source, found at {when}; {cure}"
    return True, "Unchanged", "no worker has found another version at the source"


def _cure(dataset: Dataset, observed: Observed) -> str:
    if observed.taking:
        return "a new snapshot is being taken"
    if dataset.spec.snapshot.refresh == "never":
        return f"spec.snapshot.refresh is never: run `forebay refresh {dataset.metadata.name}`"
    return "a new snapshot is due"


def _names(snapshot: Snapshot) -> Verdict:
    """Does a listing or a mount show every file?"""
    unseen = snapshot.hidden + snapshot.unshowable
    if not unseen:
        return True, "AllShown", f"all of {count(snapshot.files, 'file')} have names that a directory can show"
    why = f"{snapshot.hidden} have the name of a folder, {snapshot.unshowable} have a name that no directory can show"
    says = f"{unseen} of {count(snapshot.files, 'file')} are in no directory: {why}; by key they are read"
    return False, "SomeNotShown", says


def _workers(dataset: Dataset, observed: Observed, owners: tuple[WorkerSeen, ...]) -> Verdict:
    """Do all workers answer that should own its data?"""
    total = wanted(observed.workers, dataset.spec.replicas)
    ready = sum(worker.state == "ready" for worker in owners)
    if total and ready >= total:
        return True, "AllReady", f"{ready} of {total} workers answer"
    if len(observed.workers) < total:
        says = f"{total} replicas are asked for and {len(observed.workers)} workers exist, {ready} of them answer"
        return False, "TooFewWorkers", f"{says}; start more with `forebay up --workers {total}`"
    states = ", ".join(f"{w.id} is {w.state}" for w in observed.workers if w.state != "ready")
    if observed.workers and all(worker.state == "starting" for worker in observed.workers):
        return False, "WorkersStarting", f"0 of {total} workers answer yet"
    reason = "WorkersLost" if ready else "NoWorkers"
    return False, reason, f"{ready} of {total} workers answer: {states}"


def _phase(observed: Observed, taken: Verdict, workers: Verdict) -> tuple[Phase, Verdict]:
    """The sum: the first thing that is wrong names the phase and the reason."""
    if not taken[0]:
        if failure := observed.current_failure:
            without: Phase = "Pending" if failure.retryable else "Failed"
            return ("Degraded" if observed.snapshot else without), taken
        return ("Snapshotting" if observed.taking else "Pending"), taken
    if not workers[0]:
        return ("Pending" if workers[1] == "WorkersStarting" else "Degraded"), workers
    return "Ready", (True, "Ready", f"{taken[2]}; {workers[2]}")


def _tries(failure: Failure) -> str:
    tries = f"failed {count(failure.attempts, 'time')}, last at {timestamp(failure.at)}"
    return f"{tries}, tried again by itself" if failure.retryable else f"{tries}, `forebay refresh` tries again"


def _condition(kind: str, verdict: Verdict, observed: Observed) -> Condition:
    so, reason, message = verdict
    status = "True" if so else "False"
    before = next((condition for condition in observed.conditions if condition.type == kind), None)
    since = before.last_transition_time if before and before.status == status else timestamp(observed.now)
    return Condition.model_validate(
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    )


def _snapshot_status(snapshot: Snapshot) -> SnapshotStatus:
    return SnapshotStatus.model_validate(
        {
            "digest": snapshot.digest,
            "files": snapshot.files,
            "bytes": snapshot.bytes,
            "takenAt": timestamp(snapshot.began),
            "hidden": snapshot.hidden,
            "unshowable": snapshot.unshowable,
        }
    )


def _percent(part: int, whole: int) -> int:
    """Rounded down, so that 100 is said only of everything; nothing of nothing is everything."""
    return min(100, part * 100 // whole) if whole else 100
