"""Why a Dataset is not ready, or ready and cold: in numbers, worst first.

Pure, over what `reconcile` sees too. Each line is one fact with the figures it rests on and, where somebody can do
something, what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cache_engine.output import count
from cache_engine.sizes import format_duration, format_size
from dataset_controller.judgement import judge, timestamp
from dataset_controller.membership import EXPELLED_AFTER, chosen
from dataset_controller.observed import Observed
from dataset_controller.reconcile import retry_at
from dataset_controller.resources import Dataset, DatasetStatus

_ABOUT = {"SnapshotTaken": "snapshot", "SnapshotCurrent": "snapshot", "WorkersReady": "workers", "NamesShown": "names"}


@dataclass(frozen=True, slots=True)
class Line:
    """One fact. `about` is what it concerns: snapshot, names, source, workers, cache, room."""

    about: str
    wrong: bool
    says: str


def explain(observed: Observed) -> dict[str, Any]:
    """The answer of `forebay explain`; the Dataset must exist."""
    assert observed.dataset is not None
    status = judge(observed.dataset, observed)
    lines = sorted(_lines(observed.dataset, observed, status), key=lambda line: not line.wrong)
    name = observed.dataset.metadata.name
    return {"name": name, "phase": status.phase, "lines": [asdict(line) for line in lines]}


def _lines(dataset: Dataset, observed: Observed, status: DatasetStatus) -> Iterator[Line]:
    for condition in status.conditions:
        if condition.type != "Ready":
            yield Line(_ABOUT[condition.type], condition.status != "True", f"{condition.reason}: {condition.message}")
    yield from _source(observed)
    yield from _lost(observed)
    if observed.snapshot:
        yield _cache(status, dataset.spec.owners)
        yield _room(dataset, observed, status)


def _source(observed: Observed) -> Iterator[Line]:
    failure = observed.current_failure
    if failure is None or observed.taking:
        return
    again = retry_at(failure)
    if again is not None:
        wait = format_duration(max(0.0, again - observed.now))
        yield Line("source", True, f"try {failure.attempts + 1} comes in {wait}, at {timestamp(again)}")


def _lost(observed: Observed) -> Iterator[Line]:
    for worker in observed.workers:
        if worker.state != "ready":
            silent = (
                f"{worker.id} on {worker.node} is {worker.state}, not heard for {format_duration(worker.silent_for)}"
            )
            fate = f"after {EXPELLED_AFTER:.0f} s its data is given to others"
            yield Line("workers", True, f"{silent}; {fate}")


def _cache(status: DatasetStatus, owners: int) -> Line:
    missing = max(0, status.bytes * owners - status.cached_bytes)
    copies = f" in {owners} copies" if owners > 1 else ""
    says = f"{format_size(status.cached_bytes)} of {format_size(status.bytes * owners)}{copies} are held"
    near = f", {format_size(status.near_bytes)} more as near copies" if status.near_bytes else ""
    cure = f"; {format_size(missing)} are read from the source when first needed" if missing else ""
    return Line("cache", status.cached_ratio < 100, f"{status.cached_ratio} %: {says}{near}{cure}")


def _room(dataset: Dataset, observed: Observed, status: DatasetStatus) -> Line:
    owners = chosen(dataset, observed)
    room, need = sum(worker.capacity for worker in owners), status.bytes * dataset.spec.owners
    says = f"{count(len(owners), 'worker')} with {format_size(room)} for {format_size(need)}"
    if need <= room:
        return Line("room", False, says)
    return Line("room", True, f"{says}: {format_size(need - room)} too little; raise --cache-size or --workers")
