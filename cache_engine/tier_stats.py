"""A tier in numbers: what its metrics, its worker's heartbeat and `explain` are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What happened since start."""

    evicted: int = 0
    """Cells or pieces that left to make room."""
    evicted_bytes: int = 0
    """Bytes of the disk that they gave back."""
    refused: int = 0
    """Reservations without room: the caller read past the cache."""
    bad_blocks: int = 0
    """Blocks dropped because their bytes were not what was vouched for."""
    lost_cells: int = 0
    """Cells found missing or of a wrong length."""
    disk_errors: int = 0
    """Writes, creations and removals that the file system refused."""


@dataclass(frozen=True, slots=True)
class TierStats:
    """A tier in numbers, at one moment; `counts` since start, everything else now."""

    quota: int
    used: int
    """Bytes of the disk, reservations and unlinked files that somebody still reads included."""
    cells: int
    near: int
    """Bytes present in near copies."""
    lingering: int
    """Of `used`: unlinked files that other processes still lease."""
    not_caching: str
    """Why the last write failed; empty since one went well."""
    counts: dict[str, int]
