"""Which owner has to hold how much of which file: the plan of a warm-up, as batches to ask for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cache_engine.block import SPAN, ObjectId, spans_of
from cache_engine.manifest import Manifest
from cache_engine.ring import Ring

BATCH_FILES = 256
BATCH_BYTES = 64 << 20
"""A batch ends at 256 files or 64 MiB: a second of work for a worker, so that progress shows and a retry is cheap."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one owner holds of one file: all of it up to one span (64 MiB), else the spans that the ring gives it."""

    index: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Shares of one owner, asked for in one request."""

    owner: str
    shares: tuple[Share, ...]

    @property
    def bytes(self) -> int:
        return sum(share.bytes for share in self.shares)


@dataclass(slots=True)
class _Packing:
    """One owner's batches while they are made."""

    owner: str
    batches: list[Batch] = field(default_factory=list)
    open: list[Share] = field(default_factory=list)
    bytes: int = 0

    def add(self, share: Share) -> None:
        if self.open and (len(self.open) == BATCH_FILES or self.bytes + share.bytes > BATCH_BYTES):
            self.end()
        self.open.append(share)
        self.bytes += share.bytes

    def end(self) -> None:
        if self.open:
            self.batches.append(Batch(self.owner, tuple(self.open)))
        self.open, self.bytes = [], 0


def plan(manifest: Manifest, files: Iterable[int], ring: Ring, owners: int) -> dict[str, list[Batch]]:
    """Owner -> its batches, in the order of `files`: every share of every file, once for each of its owners."""
    packings = {member: _Packing(member) for member, _, _ in ring.seats}
    for index in files:
        for owner, size in shares_of(manifest.object_id(index), ring, owners).items():
            packings[owner].add(Share(index, size))
    for packing in packings.values():
        packing.end()
    return {owner: packing.batches for owner, packing in packings.items() if packing.batches}


def shares_of(obj: ObjectId, ring: Ring, owners: int) -> dict[str, int]:
    """Owner -> bytes of `obj` that it has to hold. An empty object still has its owners, with 0 bytes."""
    if obj.size <= SPAN:
        return dict.fromkeys(ring.owners(obj, 0, owners), obj.size)
    shares: dict[str, int] = {}
    for _, start, stop in spans_of(0, obj.size):
        for owner in ring.owners(obj, start, owners):
            shares[owner] = shares.get(owner, 0) + stop - start
    return shares
