"""What the controller sees of one Dataset at one moment: all that `reconcile` may look at.

Frozen values, filled by the shell (`controller.py`) from the store, the cluster and the snapshots in flight. Times
are seconds since the epoch on the controller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cache_engine.access import Access, MountAccess
from dataset_controller.resources import Condition, Dataset
from dataset_controller.worker_seen import WorkerSeen


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last snapshot that was taken whole, with the mounts it was taken of."""

    digest: str
    files: int
    bytes: int
    began: float
    """When its listing began: what changed at the source later may be missing."""
    mounts: tuple[MountAccess, ...]
    path: str
    """The manifest's file."""
    hidden: int = 0
    """Files that a directory cannot show because a folder has the same name; readable by key."""
    unshowable: int = 0
    """Files that no directory can show whatever the escape, such as segments over 255 bytes; readable by key."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Snapshot:
        mounts = Access.from_json({"dataset": "", "uid": "", "epoch": 0, "mounts": document["mounts"]}).mounts
        return cls(**{**document, "mounts": mounts})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last try to take a snapshot failed."""

    reason: str
    """One word for the condition: SourceDenied, SourceEmpty, ListingTruncated, SourceUnavailable..."""
    message: str
    retryable: bool
    attempts: int
    """How many tries in a row failed."""
    at: float
    mounts: tuple[MountAccess, ...]
    retry_after: float | None = None
    """Seconds that the source asked for."""


@dataclass(frozen=True, slots=True)
class Taking:
    """A snapshot in flight."""

    began: float
    mounts: tuple[MountAccess, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything. `dataset` is None where it was deleted."""

    name: str
    now: float
    dataset: Dataset | None = None
    snapshot: Snapshot | None = None
    failure: Failure | None = None
    taking: Taking | None = None
    published: Access | None = None
    workers: tuple[WorkerSeen, ...] = ()
    changed_at: float = 0.0
    """When a worker last reported that the source has another version than the snapshot names; 0 for never."""
    asked_at: float = 0.0
    """When somebody last asked for a new snapshot; 0 for never."""
    fruitless: int = 0
    """How many snapshots in a row, taken because of such a report, were the same as before."""
    conditions: tuple[Condition, ...] = ()
    """Those of the stored status: only their transition times are carried on."""

    @property
    def current_failure(self) -> Failure | None:
        """The last failure, if it is one of the mounts that the Dataset has now."""
        if self.failure and self.dataset and self.failure.mounts == self.dataset.spec.mount_access():
            return self.failure
        return None
