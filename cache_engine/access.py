"""What a reader or a worker needs to know of a Dataset: its snapshot, its members, its mounts.

The controller publishes this document with an epoch that grows with every change; whoever holds an older one
still reads right bytes (a snapshot and its blocks never change), only perhaps by a longer way. Credentials
travel as references, never as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

NearCopies = Literal["never", "onRead", "complete"]


@dataclass(frozen=True, slots=True)
class Member:
    """One cache worker of a Dataset."""

    id: str
    """Stable for the worker's life, also over restarts on another address; the ring hashes this."""
    url: str
    """Where it answers now, such as http://127.0.0.1:41234"""
    node: str
    """The name of its host: a reader there opens its cells directly."""
    directory: str
    """Its cache directory on that host."""
    weight: int = 1
    """Its capacity in bytes (any positive number): the share of objects that it owns is proportional."""


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """Which manifest is the Dataset now, and where to get it."""

    digest: str
    files: int
    bytes: int
    url: str
    """Path below the control API, such as /v1/manifests/DIGEST"""
    path: str = ""
    """The manifest file on the controller's own host, for those who can open it."""


@dataclass(frozen=True, slots=True)
class MountAccess:
    """One mount as needed to open its Source."""

    url: str
    path: str = ""
    """Where it stands inside the Dataset: no leading or trailing slash; empty for the root."""
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Name -> reference: {"env": VARIABLE} or {"file": PATH}."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """The whole document. `snapshot` is None until the first one was taken."""

    dataset: str
    uid: str
    epoch: int
    snapshot: SnapshotRef | None
    members: tuple[Member, ...] = ()
    mounts: tuple[MountAccess, ...] = ()
    owners: int = 1
    """How many workers own each object or span (k of the ring)."""
    near_copies: NearCopies = "complete"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Access:
        """Unknown members are ignored: a newer controller may say more."""
        snapshot = doc.get("snapshot")
        return cls(
            dataset=doc["dataset"],
            uid=doc["uid"],
            epoch=doc["epoch"],
            snapshot=_known(SnapshotRef, snapshot) if snapshot else None,
            members=tuple(_known(Member, m) for m in doc.get("members", ())),
            mounts=tuple(_mount(m) for m in doc.get("mounts", ())),
            owners=doc.get("owners", 1),
            near_copies=doc.get("near_copies", "complete"),
        )


def _known(kind: Any, doc: Mapping[str, Any]) -> Any:
    return kind(**{name: doc[name] for name in kind.__dataclass_fields__ if name in doc})


def _mount(doc: Mapping[str, Any]) -> MountAccess:
    lists = {name: tuple(doc.get(name, ())) for name in ("include", "exclude")}
    return _known(MountAccess, {**doc, **lists})  # type: ignore[no-any-return]
