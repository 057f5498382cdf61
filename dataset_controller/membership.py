"""Which workers own a Dataset's data, and the document that says so to readers and workers.

A worker that restarts keeps its place: its cells are still in its directory, and a reader that finds it silent asks
the next owner. Only one that stays away loses its place, since every change of the members moves ownership and so
costs reads at the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from cache_engine.access import Access, Member, SnapshotRef
from dataset_controller.observed import Observed, Snapshot
from dataset_controller.resources import Dataset
from dataset_controller.worker_seen import WorkerSeen

EXPELLED_AFTER = 30.0
"""Seconds of silence after which a worker's data is given to others: ten times what a restart takes here."""


def chosen(dataset: Dataset, observed: Observed) -> tuple[WorkerSeen, ...]:
    """The workers that own its data, by id: all that have a place, or the `replicas` first of them by hash.

    A place has who has an address, and who had one when the controller was stopped and is starting now.
    """
    before = {member.id for member in observed.published.members} if observed.published else set()
    present = [
        worker
        for worker in observed.workers
        if worker.silent_for < EXPELLED_AFTER and (worker.url or worker.id in before)
    ]
    replicas = dataset.spec.replicas
    if replicas is not None and replicas < len(present):
        present = sorted(present, key=lambda worker: _rank(dataset.metadata.uid, worker.id))[:replicas]
    return tuple(sorted(present, key=lambda worker: worker.id))


def wanted(workers: Sequence[WorkerSeen], replicas: int | None) -> int:
    """How many workers should own its data."""
    return len(workers) if replicas is None else replicas


def desired_access(dataset: Dataset, observed: Observed) -> Access:
    """The document as it should be now, with epoch 0. Mounts are those of the snapshot: its manifest counts them."""
    snapshot, spec = observed.snapshot, dataset.spec
    return Access(
        dataset=dataset.metadata.name,
        uid=dataset.metadata.uid,
        epoch=0,
        snapshot=_reference(snapshot) if snapshot else None,
        members=tuple(_member(worker, observed.published) for worker in chosen(dataset, observed)),
        mounts=snapshot.mounts if snapshot else spec.mount_access(),
        owners=spec.owners,
        near_copies=spec.near_copies,
    )


def is_published(desired: Access, published: Access | None) -> bool:
    """Whether readers have this document already, under whatever epoch."""
    return published is not None and replace(published, epoch=0) == desired


def _reference(snapshot: Snapshot) -> SnapshotRef:
    return SnapshotRef(
        digest=snapshot.digest,
        files=snapshot.files,
        bytes=snapshot.bytes,
        url=f"/v1/manifests/{snapshot.digest}",
        path=snapshot.path,
    )


def _member(worker: WorkerSeen, published: Access | None) -> Member:
    if not worker.url and published is not None:
        return next(member for member in published.members if member.id == worker.id)
    return Member(worker.id, worker.url, worker.node, worker.directory, max(1, worker.capacity))


def _rank(uid: str, worker: str) -> bytes:
    return blake2b(f"{uid}/{worker}".encode(), digest_size=8).digest()
