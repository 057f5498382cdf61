"""A lease: the right to use one cell, for as long as it is open. Made by the tier (tier.py) alone.

While any lease is open the cell is not removed; of a large incomplete cell, exactly the pieces that an open lease
has asked for are kept. `ready` and `close` touch memory alone (an event loop may call them); `missing`, `reserve`,
`write` and `vouch` may do I/O and belong into threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from crc32c import crc32c

from cache_engine.block import BLOCK, ObjectId
from cache_engine.cell import LEAVING, PROVED, RESERVED, REWRITING, UNPROVED, Cell
from cache_engine.errors import InvalidValue

if TYPE_CHECKING:
    from cache_engine.tier import DiskTier


class Lease:
    """One user's hold on one cell; a context manager. Close it: whatever it reserved and did not write is given up."""

    __slots__ = ("_cell", "_open", "_pinned", "_reserved", "_tier")

    def __init__(self, tier: DiskTier, cell: Cell) -> None:
        self._tier = tier
        self._cell = cell
        self._open = True
        self._pinned: set[int] = set()  # pieces; the table's lock guards it
        self._reserved: set[int] = set()  # blocks; the table's lock guards it

    @property
    def obj(self) -> ObjectId:
        """The object version whose cell this is."""
        return self._cell.obj

    @property
    def cell_name(self) -> str:
        return self._cell.name

    @property
    def fd(self) -> int:
        """Descriptor of the cell's file, for sendfile and pread of ready blocks; -1 while there is no file."""
        return self._cell.fd

    @property
    def complete(self) -> bool:
        """Every block is present, and its CRC was compared since the last unclean stop."""
        return self._cell.proved == self._cell.blocks

    def ready(self, blocks: range) -> bool:
        """All of these blocks may be read through `fd` now, until this lease closes."""
        cell = self._cell
        if cell.fd < 0:
            return not blocks
        if cell.blocks > cell.piece_blocks:
            with self._tier.table.lock:
                self._tier.table.pin(cell, blocks, self._pinned)
        if cell.proved == cell.blocks:
            return True
        return cell.state.count(PROVED, blocks.start, blocks.stop) == len(blocks)

    def missing(self, blocks: Sequence[int]) -> list[int]:
        """Those of the blocks that must be fetched. Reads what nobody has compared since an unclean stop."""
        cell = self._cell
        with self._tier.table.lock:
            self._tier.table.pin(cell, blocks, self._pinned)
        unproved = [block for block in blocks if cell.state[block] == UNPROVED]
        if unproved:
            buffer = memoryview(bytearray(min(BLOCK, cell.obj.size)))
            for block in unproved:
                self._prove(block, buffer[: cell.length(block)])
        return [block for block in blocks if cell.state[block] != PROVED or cell.fd < 0]

    def crcs(self, blocks: Sequence[int]) -> list[int]:
        """The CRC32C of each of these blocks, which are present."""
        return [self._cell.crcs[block] for block in blocks]

    def reserve(self, blocks: Sequence[int]) -> bool:
        """Take room for these blocks, evicting as needed; False: there is none, read past the cache."""
        cell, table = self._cell, self._tier.table
        if not blocks:
            return True
        while True:
            with table.lock:
                if cell.dropped or any(cell.state[block] == LEAVING for block in blocks):
                    return False
                table.pin(cell, blocks, self._pinned)
                cost = table.cost_to_reserve(cell, blocks)
            if not self._tier.room.take(cost):
                with table.lock:
                    table.counts.refused += 1
                return False
            with table.lock:
                actual = table.cost_to_reserve(cell, blocks)  # other threads reserve and cancel meanwhile
                if actual <= cost and not cell.dropped:
                    table.ledger.give(cost - actual)
                    self._reserved |= table.reserve(cell, blocks)
                    break
                table.ledger.give(cost)
        if self._tier.writing.ensure_file(cell):
            return True
        self.cancel(blocks)
        return False

    def write(self, block: int, view: memoryview, crc: int) -> bool:
        """Write one reserved block, whose CRC32C the caller took of the same bytes. False: not cached (counted)."""
        cell, table = self._cell, self._tier.table
        if len(view) != cell.length(block):
            raise InvalidValue(f"block {block} has {cell.length(block)} bytes, not {len(view)}; write whole blocks")
        with table.lock:
            state = cell.state[block]
            if state >= UNPROVED:
                return True
            if state not in (RESERVED, REWRITING) or cell.dropped or cell.fd < 0:
                return False
            cell.state[block] = REWRITING
            fd = cell.fd
        if not self._tier.writing.write(fd, view, block * BLOCK):
            self.cancel((block,))
            return False
        with table.lock:
            self._reserved.discard(block)
            if cell.state[block] < LEAVING and not cell.dropped:
                table.set_present(cell, block, crc)
        return True

    def vouch(self) -> None:
        """Let the voucher on the disk say what was written; without it, a restart or another process sees nothing."""
        self._tier.vouching.save(self._cell, self._tier.room.take)

    def cancel(self, blocks: Sequence[int]) -> None:
        """Give up reservations of this lease that were not written."""
        with self._tier.table.lock:
            mine = self._reserved.intersection(blocks)
            self._reserved -= mine
            self._tier.table.cancel(self._cell, mine)

    def discard(self, block: int) -> None:
        """The block's bytes are not what was vouched for: it is missing from now on, and counted."""
        with self._tier.table.lock:
            if self._cell.state[block] >= UNPROVED:
                self._tier.table.set_absent(self._cell, block)
                self._tier.table.counts.bad_blocks += 1

    def recheck(self, block: int) -> bool:
        """Compare a present block with its CRC now, whatever was compared before (somebody says that it is bad)."""
        if self._cell.state[block] >= UNPROVED:
            self._prove(block, memoryview(bytearray(self._cell.length(block))))
        return self._cell.state[block] == PROVED

    def close(self) -> None:
        """Idempotent. Closes the file with its last lease."""
        if self._open:
            self._open = False
            if self._reserved:
                self.cancel(tuple(self._reserved))
            self._tier.leave(self._cell, self._pinned)

    def _prove(self, block: int, buffer: memoryview) -> None:
        cell = self._cell
        try:
            count = os.preadv(cell.fd, [buffer], block * BLOCK) if cell.fd >= 0 else -1
        except OSError:
            count = 0
        if count == len(buffer) and crc32c(buffer) == cell.crcs[block]:
            with self._tier.table.lock:
                self._tier.table.set_proved(cell, block)
        elif count >= 0:
            self.discard(block)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Lease of {self._cell!r}>"
