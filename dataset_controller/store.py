"""Where Datasets live on one machine: a SQLite file, and an ordered stream of what happened to them.

One thread uses it: the control loop's. Versions come from one counter that never goes back, not even over a restart
or a deletion; an object's resourceVersion and a membership epoch are such numbers, so that an epoch of a Dataset
deleted and made again under the same name is always the larger one. WAL with synchronous=NORMAL: a commit writes
and does not wait for the disk (60 us), survives kill -9, and a power cut loses the last ones, never the file.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cache_engine.access import Access
from cache_engine.errors import CacheEngineError, InvalidValue, NotFound
from dataset_controller.observed import Snapshot
from dataset_controller.resources import Dataset, DatasetStatus

FORMAT = 1
KEPT_EVENTS = 10_000
"""Events that a watcher may lag behind before it must list anew."""

_SCHEMA = """
CREATE TABLE counter (value INTEGER NOT NULL, pruned INTEGER NOT NULL);
INSERT INTO counter VALUES (0, 0);
CREATE TABLE objects (name TEXT PRIMARY KEY, uid TEXT NOT NULL UNIQUE, object TEXT NOT NULL);
CREATE TABLE snapshots (uid TEXT PRIMARY KEY, record TEXT NOT NULL, previous TEXT);
CREATE TABLE publications (uid TEXT PRIMARY KEY, name TEXT NOT NULL, epoch INTEGER NOT NULL, access TEXT NOT NULL);
CREATE TABLE events (version INTEGER PRIMARY KEY, type TEXT NOT NULL, name TEXT NOT NULL, object TEXT NOT NULL);
"""

Change = Literal["created", "configured", "unchanged"]


class Expired(CacheEngineError):
    """The events after that version are no longer kept: list anew, then watch from there."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one object, which is as it was right after it (DELETED: right before)."""

    version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    name: str
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one applied document."""

    change: Change
    dataset: Dataset


class Store:
    """The state file at `path`. `on_event` is called after each commit, in order, with every event of it."""

    def __init__(
        self, path: Path, on_event: Callable[[Event], None] = lambda event: None, kept_events: int = KEPT_EVENTS
    ) -> None:
        self._path = path
        self._kept_events = kept_events
        self._on_event = on_event
        self._fresh: list[Event] = []
        """Events of the transaction under way."""
        self._db = _open(path)

    def __repr__(self) -> str:
        return f"<Store {self._path} version={self.version}>"

    def close(self) -> None:
        self._db.close()

    @property
    def version(self) -> int:
        """The number of the last change."""
        return int(self._db.execute("SELECT value FROM counter").fetchone()[0])

    def get(self, name: str) -> Dataset:
        """Raises NotFound."""
        row = self._db.execute("SELECT object FROM objects WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise NotFound(f"there is no Dataset {name!r}; `forebay get datasets` lists those that exist")
        return Dataset.model_validate_json(row[0])

    def datasets(self) -> list[Dataset]:
        """All of them, by name."""
        rows = self._db.execute("SELECT object FROM objects ORDER BY name").fetchall()
        return [Dataset.model_validate_json(row[0]) for row in rows]

    def apply(self, datasets: Sequence[Dataset], now: str) -> list[Applied]:
        """Store all or none. A changed spec makes a new generation; an equal document changes nothing."""
        with self._transaction():
            return [self._apply(dataset, now) for dataset in datasets]

    def delete(self, name: str) -> Dataset:
        """Remove it with its snapshot and publication. Raises NotFound."""
        with self._transaction():
            dataset = self.get(name)
            for table in ("objects", "snapshots", "publications"):
                self._db.execute(f"DELETE FROM {table} WHERE uid = ?", (dataset.metadata.uid,))
            self._record("DELETED", dataset)
        return dataset

    def write_status(self, name: str, uid: str, status: DatasetStatus) -> bool:
        """False where nothing was written: the status is the same, or that Dataset is gone."""
        with self._transaction():
            row = self._db.execute("SELECT object FROM objects WHERE name = ? AND uid = ?", (name, uid)).fetchone()
            stored = Dataset.model_validate_json(row[0]) if row else None
            if stored is None or stored.status == status:
                return False
            self._keep("MODIFIED", stored.model_copy(update={"status": status}))
        return True

    def snapshot(self, uid: str) -> Snapshot | None:
        row = self._db.execute("SELECT record FROM snapshots WHERE uid = ?", (uid,)).fetchone()
        return Snapshot.from_json(json.loads(row[0])) if row else None

    def keep_snapshot(self, uid: str, snapshot: Snapshot) -> bool:
        """False where that Dataset is gone. The manifest before stays known, for readers that still have it."""
        with self._transaction():
            if not self._db.execute("SELECT 1 FROM objects WHERE uid = ?", (uid,)).fetchone():
                return False
            before = self.snapshot(uid)
            previous = before.digest if before and before.digest != snapshot.digest else None
            self._db.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?) ON CONFLICT (uid) DO UPDATE"
                " SET record = excluded.record, previous = coalesce(excluded.previous, previous)",
                (uid, json.dumps(snapshot.to_json()), previous),
            )
        return True

    def needed_manifests(self) -> set[str]:
        """Digests that a Dataset has now or had before its last change."""
        rows = self._db.execute("SELECT record, previous FROM snapshots").fetchall()
        return {json.loads(record)["digest"] for record, _ in rows} | {previous for _, previous in rows if previous}

    def publication(self, uid: str) -> Access | None:
        row = self._db.execute("SELECT access FROM publications WHERE uid = ?", (uid,)).fetchone()
        return Access.from_json(json.loads(row[0])) if row else None

    def publish(self, access: Access) -> Access:
        """Keep the document under the next epoch, which is returned in it."""
        with self._transaction():
            published = replace(access, epoch=self._next())
            self._db.execute(
                "INSERT INTO publications VALUES (?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE"
                " SET epoch = excluded.epoch, access = excluded.access",
                (access.uid, access.dataset, published.epoch, json.dumps(published.to_json())),
            )
        return published

    def epochs(self) -> dict[str, int]:
        """Name -> epoch of everything that is published: what workers may keep."""
        return dict(self._db.execute("SELECT name, epoch FROM publications").fetchall())

    def events(self, since: int) -> list[Event]:
        """Everything after version `since`, oldest first. Raises Expired where some of it is no longer kept."""
        last, pruned = self._db.execute("SELECT value, pruned FROM counter").fetchone()
        if not pruned <= since <= last:
            raise Expired(f"the events after version {since} are not here; list the Datasets and watch from there")
        rows = self._db.execute("SELECT * FROM events WHERE version > ? ORDER BY version", (since,)).fetchall()
        return [Event(version, kind, name, json.loads(text)) for version, kind, name, text in rows]

    def _apply(self, dataset: Dataset, now: str) -> Applied:
        try:
            stored = self.get(dataset.metadata.name)
        except NotFound:
            owned = {"uid": str(uuid.uuid4()), "generation": 1, "creation_timestamp": now}
            fresh = dataset.model_copy(update={"metadata": dataset.metadata.model_copy(update=owned)})
            return Applied("created", self._keep("ADDED", fresh))
        same_spec = stored.spec == dataset.spec
        written = {"labels": dataset.metadata.labels, "annotations": dataset.metadata.annotations}
        metadata = stored.metadata.model_copy(update=written)
        if same_spec and metadata == stored.metadata:
            return Applied("unchanged", stored)
        if not same_spec:
            metadata = metadata.model_copy(update={"generation": metadata.generation + 1})
        changed = stored.model_copy(update={"metadata": metadata, "spec": dataset.spec})
        return Applied("configured", self._keep("MODIFIED", changed))

    def _keep(self, kind: Literal["ADDED", "MODIFIED"], dataset: Dataset) -> Dataset:
        dataset = self._record(kind, dataset)
        row = (dataset.metadata.name, dataset.metadata.uid, json.dumps(dataset.to_json()))
        self._db.execute(
            "INSERT INTO objects VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET object = excluded.object", row
        )
        return dataset

    def _record(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], dataset: Dataset) -> Dataset:
        """Number the change and put it into the stream."""
        version = self._next()
        metadata = dataset.metadata.model_copy(update={"resource_version": str(version)})
        dataset = dataset.model_copy(update={"metadata": metadata})
        event = Event(version, kind, metadata.name, dataset.to_json())
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)", (version, kind, event.name, json.dumps(event.object))
        )
        self._prune()
        self._fresh.append(event)
        return dataset

    def _prune(self) -> None:
        last = "SELECT version FROM events ORDER BY version DESC LIMIT 1 OFFSET ?"
        row = self._db.execute(last, (self._kept_events,)).fetchone()
        if row:
            self._db.execute("DELETE FROM events WHERE version <= ?", row)
            self._db.execute("UPDATE counter SET pruned = ?", row)

    def _next(self) -> int:
        return int(self._db.execute("UPDATE counter SET value = value + 1 RETURNING value").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._fresh = []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        for event in self._fresh:
            self._on_event(event)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
    except sqlite3.DatabaseError as error:
        database.close()
        raise InvalidValue(
            f"{path} is not a state file ({error}); move it away and apply the Datasets again"
        ) from error
    if found not in (0, FORMAT):
        database.close()
        raise InvalidValue(
            f"{path} has format {found} and this forebay reads format {FORMAT}; use the forebay that wrote it"
        )
    return database
