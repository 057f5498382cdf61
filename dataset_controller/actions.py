"""What `reconcile` may ask the shell to do. Each is safe to carry out twice."""

from __future__ import annotations

from dataclasses import dataclass

from cache_engine.access import Access, MountAccess


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """List these mounts now; a snapshot in flight of other mounts is no longer wanted."""

    mounts: tuple[MountAccess, ...]
    because: str
    """For the log."""


@dataclass(frozen=True, slots=True)
class PublishMembership:
    """Give this document to readers and workers under a new epoch; its own epoch is 0."""

    access: Access


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is remembered of a deleted Dataset, and the manifests that nobody needs any more."""

    name: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing will tell when this Dataset is next due: look by the clock."""

    after: float
    """Seconds."""


Action = TakeSnapshot | PublishMembership | Forget | LookAgain
