"""The shell around `reconcile`: observes, carries out, and takes what the API is asked for.

Runs on one thread, the event loop's; only listings and checks of sources leave it (`snapshots.py`, `admission.py`).
Every request that changes something ends in a trigger of the object's queue (`loop.py`), never in the change itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from cache_engine.access import Access
from cache_engine.errors import CacheEngineError, NotFound, SourceUnavailable
from dataset_controller import actions
from dataset_controller.judgement import timestamp
from dataset_controller.loop import Loop
from dataset_controller.membership import desired_access
from dataset_controller.observed import Failure, Observed, Snapshot, Taking
from dataset_controller.reconcile import reconcile
from dataset_controller.resources import Dataset
from dataset_controller.snapshots import Difference, Snapshots, Take, sweep
from dataset_controller.store import Applied, Event, Store
from dataset_controller.worker_seen import WorkerSeen

SETTLE = 0.5
"""Seconds that heartbeats with other byte counts are gathered before the status is written."""

_log = logging.getLogger(__name__)


class Workers(Protocol):
    """What the controller sees of a cluster."""

    def seen(self, uid: str) -> tuple[WorkerSeen, ...]: ...


class Clock:
    """Seconds since the epoch that never go back while the controller lives, whatever is done to the wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


class Marks:
    """What was said of a Dataset and is not in the store: gone after a restart, which looks at everything anyway."""

    def __init__(self) -> None:
        self.changed_at = 0.0
        self.asked_at = 0.0
        self.fruitless = 0
        self.waiting: list[tuple[float, asyncio.Future[dict[str, Any]]]] = []
        """Who waits for a snapshot begun at that time or later."""


class Controller:
    """All Datasets of one state directory."""

    def __init__(self, state: Path, workers: Workers, take: Take, clock: Callable[[], float] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.manifests = state / "manifests"
        self.manifests.mkdir(mode=0o700, exist_ok=True)
        self.store = Store(state / "state.db", self._on_event)
        self._workers = workers
        self._clock = clock or Clock()
        self._snapshots = Snapshots(take, self.manifests, _poster(loop), self._clock)
        self._marks: dict[str, Marks] = {}
        self._loop = Loop(self._look)
        self._events: set[asyncio.Event] = set()
        self._uids: dict[str, str] = {}
        """Name -> uid of what is stored: kept by the store's events."""

    def __repr__(self) -> str:
        return f"<Controller {self.store!r} {self._loop!r} {self._snapshots!r}>"

    def start(self) -> None:
        """Look at everything that is stored; remove what a kill left behind."""
        for partial in self.manifests.glob(".taking-*"):
            partial.unlink(missing_ok=True)
        sweep(self.manifests, self.store.needed_manifests())
        for dataset in self.store.datasets():
            self._uids[dataset.metadata.name] = dataset.metadata.uid
            self._undo_future(dataset.metadata.uid)
        self.workers_changed(None)

    async def close(self) -> None:
        await self._loop.close()
        self.store.close()

    def apply(self, datasets: Sequence[Dataset]) -> list[Applied]:
        """Store them, all or none. They must have been admitted (`admission.py`)."""
        return self.store.apply(datasets, timestamp(self._clock()))

    def delete(self, name: str) -> Dataset:
        return self.store.delete(name)

    async def refresh(self, name: str) -> dict[str, Any]:
        """A new snapshot, begun after this call; its numbers. Raises what the source raised."""
        dataset = self.store.get(name)
        marks = self._mark(dataset.metadata.uid)
        marks.asked_at = self._clock()
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        marks.waiting.append((marks.asked_at, future))
        self._loop.trigger(name)
        return await future

    def object_changed(self, name: str) -> None:
        """A worker found another version at the source than the snapshot names."""
        if uid := self._uids.get(name):
            self._mark(uid).changed_at = self._clock()
            self._loop.trigger(name, SETTLE)

    def workers_changed(self, uids: frozenset[str] | None) -> None:
        """Other workers (None: concerns all Datasets), or other bytes on them (only these Datasets)."""
        for name, uid in self._uids.items():
            if uids is None or uid in uids:
                self._loop.trigger(name, 0.0 if uids is None else SETTLE)

    @property
    def uids(self) -> dict[str, str]:
        """Name -> uid of every Dataset: a worker that starts drops the cells of all other labels."""
        return dict(self._uids)

    def access(self, name: str) -> Access:
        """What is published; before the first look at a new Dataset, what will be."""
        dataset = self.store.get(name)
        published = self.store.publication(dataset.metadata.uid)
        return published or desired_access(dataset, self.observe(name))

    def observe(self, name: str) -> Observed:
        """All that is known of it now."""
        try:
            dataset = self.store.get(name)
        except NotFound:
            return Observed(name, self._clock())
        uid = dataset.metadata.uid
        marks = self._mark(uid)
        return Observed(
            name=name,
            now=self._clock(),
            dataset=dataset,
            snapshot=self.store.snapshot(uid),
            failure=self._snapshots.failure(uid),
            taking=self._snapshots.taking(uid),
            published=self.store.publication(uid),
            workers=self._workers.seen(uid),
            changed_at=marks.changed_at,
            asked_at=marks.asked_at,
            fruitless=marks.fruitless,
            conditions=tuple(dataset.status.conditions),
        )

    async def wait_event(self, since: int, most: float) -> list[Event]:
        """The events after `since`, waiting up to `most` seconds for the first. Raises Expired."""
        wake = asyncio.Event()
        self._events.add(wake)
        try:
            if not self.store.events(since):
                await asyncio.wait_for(wake.wait(), most)
        except TimeoutError:
            return []
        finally:
            self._events.discard(wake)
        return self.store.events(since)

    async def _look(self, name: str) -> float | None:
        observed = self.observe(name)
        wanted, status = reconcile(observed)
        after = None
        for action in wanted:
            if isinstance(action, actions.LookAgain):
                after = action.after
            else:
                self._carry_out(action, observed)
        if status and observed.dataset:
            self.store.write_status(name, observed.dataset.metadata.uid, status)
        return after

    def _carry_out(self, action: actions.Action, observed: Observed) -> None:
        if isinstance(action, actions.Forget):
            self._forget(action.name)
        elif isinstance(action, actions.PublishMembership):
            published = self.store.publish(action.access)
            _log.info("%s: epoch %d, %d members", observed.name, published.epoch, len(published.members))
        elif isinstance(action, actions.TakeSnapshot) and observed.dataset:
            self._take(observed.dataset, action, observed)

    def _take(self, dataset: Dataset, action: actions.TakeSnapshot, observed: Observed) -> None:
        name, uid = dataset.metadata.name, dataset.metadata.uid
        _log.info("%s: taking a snapshot, because %s", name, action.because)
        taking = Taking(self._clock(), action.mounts)

        def done(snapshot: Snapshot, difference: Difference) -> None:
            self._snapshot_taken(name, uid, snapshot, difference)

        def failed(failure: Failure, error: Exception) -> None:
            _log.warning("%s: snapshot failed (%s, try %d): %s", name, failure.reason, failure.attempts, error)
            self._answer(uid, failure.at, error)
            self._loop.trigger(name)

        self._snapshots.start(uid, taking, observed.snapshot, done, failed)
        self._loop.trigger(name)

    def _snapshot_taken(self, name: str, uid: str, snapshot: Snapshot, difference: Difference) -> None:
        marks, before = self._mark(uid), self.store.snapshot(uid)
        same = before is not None and before.digest == snapshot.digest
        marks.fruitless = marks.fruitless + 1 if same else 0
        if not self.store.keep_snapshot(uid, snapshot):
            self._forget(name)
            return
        numbers = {"name": name, "digest": snapshot.digest, "files": snapshot.files, "bytes": snapshot.bytes}
        changes = {"added": difference.added, "changed": difference.changed, "gone": difference.gone}
        self._answer(uid, snapshot.began, {**numbers, **changes})
        sweep(self.manifests, self.store.needed_manifests())
        self._loop.trigger(name)

    def _answer(self, uid: str, began: float, outcome: dict[str, Any] | Exception) -> None:
        """Tell those who waited for this snapshot; who asked after it began goes on waiting."""
        marks = self._mark(uid)
        answered = [future for asked, future in marks.waiting if asked <= began]
        marks.waiting = [(asked, future) for asked, future in marks.waiting if asked > began]
        for future in answered:
            if future.cancelled():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome if isinstance(outcome, CacheEngineError) else _unavailable(outcome))
            else:
                future.set_result(outcome)

    def _undo_future(self, uid: str) -> None:
        """A snapshot from later than now (the wall clock was set back) would be newer than any wish for another."""
        snapshot = self.store.snapshot(uid)
        if snapshot and snapshot.began > self._clock():
            self.store.keep_snapshot(uid, replace(snapshot, began=self._clock()))

    def _mark(self, uid: str) -> Marks:
        return self._marks.setdefault(uid, Marks())

    def _forget(self, name: str) -> None:
        known = {dataset.metadata.uid for dataset in self.store.datasets()}
        for uid in [uid for uid in self._marks if uid not in known]:
            gone = NotFound(f"Dataset {name!r} was deleted")
            self._snapshots.forget(uid)
            self._answer(uid, float("inf"), gone)
            del self._marks[uid]
        sweep(self.manifests, self.store.needed_manifests())

    def _on_event(self, event: Event) -> None:
        if event.type == "DELETED":
            self._uids.pop(event.name, None)
        else:
            self._uids[event.name] = event.object["metadata"]["uid"]
        self._loop.trigger(event.name)
        for wake in self._events:
            wake.set()


def _poster(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None]], None]:
    """From a listing's thread to the control thread; an outcome that comes after the end is dropped."""

    def post(call: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            _log.info("a listing ended after the controller did")

    return post


def _unavailable(error: Exception) -> SourceUnavailable:
    return SourceUnavailable(f"the snapshot could not be written: {error}; look at the state directory")
