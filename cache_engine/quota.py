"""What things cost on a disk, and the ledger that keeps a tier within its quota.

Every byte that is on the disk or may get there is taken from the ledger first: blocks when they are reserved,
a cell's voucher with its first block, the second copy of a voucher while it is replaced. Directories and inodes
are not counted (about 0.2 KiB a cell).
"""

from __future__ import annotations

from cache_engine.block import BLOCK, block_count

PAGE = 4096
"""Bytes that a file system allocates at once, as nearly all do."""
_BLOCKS_AN_EXTENT_LEAF = 256
"""ext4 holds 4 extents in the inode and 340 in a leaf of one page; blocks filled in any order take one extent each."""


def allocated(size: int) -> int:
    """`size` bytes of a file, rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def extents_cost(size: int) -> int:
    """Bytes for the map of a cell's extents, which the file system counts as the file's own."""
    blocks = block_count(size)
    return 0 if blocks <= 4 else PAGE * (blocks // _BLOCKS_AN_EXTENT_LEAF + 1)


def piece_blocks(quota: int, span: int) -> int:
    """Blocks that leave a large cell together: a span, but less in a tier that would hold fewer than four of those."""
    return max(1, min(span, quota // BLOCK // 4))


class Ledger:
    """Bytes taken of a quota. The tier's lock guards it."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.used = 0

    @property
    def free(self) -> int:
        """Negative where the quota was lowered below what is held."""
        return self.quota - self.used

    def take(self, size: int) -> bool:
        if size > self.free:
            return False
        self.used += size
        return True

    def restore(self, size: int) -> None:
        """Count what was already on the disk at start, even beyond the quota."""
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "more bytes were given back than taken"

    def __repr__(self) -> str:
        return f"<Ledger {self.used}/{self.quota}>"
