"""Every cell of a tier in memory, with the ledger, the policy and the labels' bytes: what the tier decides on.

No I/O. `lock` guards everything here and in the cells; methods whose docstring does not say otherwise are called
with it held. `freed` is told whenever something that was leaving has left, or stays after all.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from cache_engine.block import ObjectId
from cache_engine.cell import ABSENT, LEAVING, PROVED, RESERVED, REWRITING, STALE, UNPROVED, Cell
from cache_engine.policy import Policy
from cache_engine.quota import Ledger
from cache_engine.tier_stats import Counts
from cache_engine.voucher import Voucher

_PROVED = bytes([ABSENT, PROVED]) + bytes(254)
_UNPROVED = bytes([ABSENT, UNPROVED]) + bytes(254)


class CellTable:
    """The tier's memory. See the module for who locks."""

    def __init__(self, quota: int, policy: Policy, piece_blocks: int) -> None:
        self.lock = threading.Lock()
        self.freed = threading.Condition(self.lock)
        self.ledger = Ledger(quota)
        self.policy = policy
        self.piece_blocks = piece_blocks
        self.cells: dict[str, Cell] = {}
        self.unsaved: set[str] = set()
        self.counts = Counts()
        self.leaving = 0  # evictions on their way
        self.closed = False  # the directory may belong to another process: nothing is created or saved any more
        self.near_bytes = 0
        self.idle_files = 0
        """Files kept open for the next lease at the most: opening and closing costs a small read half of its time."""
        self._idle: dict[str, Cell] = {}  # the least recently leased first
        self._held: Counter[tuple[str, bool]] = Counter()
        self._labels: dict[tuple[tuple[str, bool], ...], Mapping[str, bool]] = {}  # one mapping for all its cells

    # Leases

    def enter(self, obj: ObjectId, name: str) -> Cell:
        """The cell, leased once more; one outside the table, never cached, while it is being removed."""
        cell = self.cells.get(name)
        if cell is None:
            cell = self.cells[name] = Cell(obj, name, self.piece_blocks)
        elif cell.leaving:
            cell = Cell(obj, name, self.piece_blocks)
            cell.dropped = True
        self.hold(cell)
        return cell

    def hold(self, cell: Cell) -> None:
        """One lease more."""
        self._idle.pop(cell.name, None)
        cell.leases += 1

    def leave(self, cell: Cell, pinned: Iterable[int]) -> int:
        """One lease less; returns the descriptor that nobody uses any more, or -1."""
        for piece in pinned:
            cell.pins[piece] -= 1
            if not cell.pins[piece]:
                del cell.pins[piece]
        cell.leases -= 1
        if cell.leases:
            return -1
        if not cell.on_disk and not cell.charged and self.cells.get(cell.name) is cell and not cell.leaving:
            del self.cells[cell.name]
            self.relabel(cell, {})
        elif cell.fd >= 0 and self.idle_files and not cell.dropped and not cell.leaving:
            self._idle[cell.name] = cell
            return self.take_idle(next(iter(self._idle.values()))) if len(self._idle) > self.idle_files else -1
        fd, cell.fd = cell.fd, -1
        return fd

    def take_idle(self, cell: Cell) -> int:
        """The descriptor that was kept for the next lease, to be closed by the caller; -1 where there is none."""
        if self._idle.pop(cell.name, None) is None:
            return -1
        fd, cell.fd = cell.fd, -1
        return fd

    def idle(self) -> list[Cell]:
        """Cells that nobody leases and whose file is open all the same."""
        return list(self._idle.values())

    def pin(self, cell: Cell, blocks: Iterable[int], pinned: set[int]) -> None:
        """Keep the pieces of these blocks for as long as the lease with that set of `pinned` pieces."""
        if cell.blocks <= cell.piece_blocks:  # of one piece: the lease itself keeps it
            return
        for piece in cell.pieces_of(blocks) - pinned:
            cell.pins[piece] = cell.pins.get(piece, 0) + 1
            pinned.add(piece)
            self.policy.touch(cell.key(piece))

    # Labels

    def relabel(self, cell: Cell, labels: Mapping[str, bool]) -> None:
        """Give the cell exactly these labels: each is charged for every present block."""
        if labels == cell.labels:
            return
        self._count_held(cell, -cell.present_bytes)
        was_near = cell.near
        cell.labels = self._shared(labels)
        cell.near = bool(labels) and all(labels.values())
        self._count_held(cell, cell.present_bytes)
        if was_near != cell.near:
            for piece in range(cell.pieces):
                if cell.key(piece) in self.policy:
                    self.policy.add(cell.key(piece), near=cell.near)
        self.changed(cell)

    def charge_to(self, cell: Cell, label: str, near: bool) -> None:
        """Add a label. A near copy that is leased as owned becomes owned; never the other way round."""
        was = cell.labels.get(label)
        if not cell.dropped and (was is None or (was and not near)):
            self.relabel(cell, {**cell.labels, label: near})

    def held(self, label: str, near: bool) -> int:
        return self._held[label, near]

    def by_label(self) -> dict[str, dict[str, int]]:
        """Bytes present for each label that is charged for any: {"cached": owned here, "near": near copies}."""
        labels = {label for label, _ in self._held if label}
        return {label: {"cached": self.held(label, False), "near": self.held(label, True)} for label in labels}

    def labelled(self, label: str) -> Iterator[Cell]:
        return (cell for cell in self.cells.values() if label in cell.labels)

    def _shared(self, labels: Mapping[str, bool]) -> Mapping[str, bool]:
        key = tuple(sorted(labels.items()))
        if key not in self._labels:
            self._labels[key] = {sys.intern(label): near for label, near in key}
        return self._labels[key]

    def _count_held(self, cell: Cell, size: int) -> None:
        if cell.near:
            self.near_bytes += size
        for label, near in cell.labels.items():
            self._held[label, near] += size
            if not self._held[label, near]:
                del self._held[label, near]

    # Blocks

    def cost_to_reserve(self, cell: Cell, blocks: Iterable[int]) -> int:
        """Bytes to take from the ledger first; the first block of a cell also pays for voucher and extents."""
        cost = cell.cost([block for block in blocks if cell.state[block] == ABSENT])
        return cost if cell.charged else cost + sum(cell.fixed_cost())

    def reserve(self, cell: Cell, blocks: Iterable[int]) -> set[int]:
        """Reserve what is neither present nor reserved (its cost is already taken); returns those blocks."""
        self._charge_fixed(cell)
        fresh = [block for block in blocks if cell.state[block] == ABSENT]
        stale = [block for block in blocks if cell.state[block] == STALE]
        cell.charged += cell.cost(fresh)
        for block in fresh:
            cell.state[block] = RESERVED
        for block in stale:
            cell.state[block] = REWRITING
        for piece in cell.pieces_of(fresh + stale):
            self.policy.add(cell.key(piece), near=cell.near)
        return {*fresh, *stale}

    def _charge_fixed(self, cell: Cell) -> None:
        if not cell.charged:
            cell.voucher_room, cell.extents = cell.fixed_cost()
            cell.charged = cell.voucher_room + cell.extents

    def cancel(self, cell: Cell, blocks: Iterable[int]) -> None:
        """Take reservations back. What may have bytes on the disk stays charged until its piece leaves."""
        for block in blocks:
            if cell.state[block] == RESERVED:
                cell.state[block] = ABSENT
                cost = cell.cost((block,))
                cell.charged -= cost
                self.ledger.give(cost)
            elif cell.state[block] == REWRITING:
                cell.state[block] = STALE
        if not cell.on_disk and cell.charged == cell.voucher_room + cell.extents:
            self._uncharge(cell)

    def set_present(self, cell: Cell, block: int, crc: int, state: int = PROVED) -> None:
        cell.crcs[block] = crc
        cell.state[block] = state
        cell.present += 1
        cell.proved += state == PROVED
        cell.present_bytes += cell.length(block)
        self._count_held(cell, cell.length(block))
        self.changed(cell)
        if cell.complete and cell.blocks > cell.piece_blocks:  # from now on one key for all of it
            for piece in range(1, cell.pieces):
                self.policy.remove((cell.name, piece))
            self.policy.add(cell.key(0), near=cell.near)

    def set_proved(self, cell: Cell, block: int) -> None:
        if cell.state[block] == UNPROVED:
            cell.state[block] = PROVED
            cell.proved += 1

    def set_absent(self, cell: Cell, block: int, state: int = STALE) -> None:
        """A present block stops being usable; its bytes stay on the disk, and charged."""
        if cell.state[block] < UNPROVED:
            return
        split = cell.complete and cell.blocks > cell.piece_blocks
        cell.proved -= cell.state[block] == PROVED
        cell.state[block] = state
        cell.present -= 1
        cell.present_bytes -= cell.length(block)
        self._count_held(cell, -cell.length(block))
        self.changed(cell)
        for piece in range(cell.pieces) if split else ():
            self.policy.add(cell.key(piece), near=cell.near)

    def changed(self, cell: Cell) -> None:
        """The voucher on the disk, if any, says something else now."""
        cell.changes += 1
        if cell.on_disk and not cell.dropped:
            self.unsaved.add(cell.name)

    def _uncharge(self, cell: Cell) -> None:
        self.ledger.give(cell.charged)
        cell.charged = cell.voucher_room = cell.extents = 0
        for piece in range(cell.pieces):
            self.policy.remove(cell.key(piece))

    # Coming and going

    def restore(self, voucher: Voucher, name: str, proved: bool) -> Cell:
        """A cell found on the disk at start, counted even where it is beyond the quota."""
        cell = self.cells[name] = Cell(voucher.obj, name, self.piece_blocks)
        cell.on_disk = cell.vouched = True
        cell.labels = self._shared(voucher.labels)
        cell.near = bool(cell.labels) and all(cell.labels.values())
        present = [block for block, flag in enumerate(voucher.present) if flag]
        self._charge_fixed(cell)
        cell.charged += cell.cost(present)
        self.ledger.restore(cell.charged)
        for piece in {0} if voucher.complete else cell.pieces_of(present):
            self.policy.add((name, piece), near=cell.near)
        cell.crcs = voucher.crcs
        cell.state = bytearray(voucher.present.translate(_PROVED if proved else _UNPROVED))
        cell.present = len(present)
        cell.proved = cell.present if proved else 0
        cell.present_bytes = sum(map(cell.length, present))
        self._count_held(cell, cell.present_bytes)
        return cell

    def charge_excess(self, cell: Cell, excess: int) -> None:
        """The file system counts more for the cell than its blocks and extents should take."""
        self.ledger.restore(excess)
        cell.extents += excess
        cell.charged += excess

    def forget(self, cell: Cell) -> None:
        """Take the cell out of the table. Its bytes stay charged to it: `release` gives them back."""
        if self.cells.get(cell.name) is cell:
            del self.cells[cell.name]
        for piece in range(cell.pieces):
            self.policy.remove((cell.name, piece))
        self.relabel(cell, {})
        cell.dropped = True
        self.unsaved.discard(cell.name)

    def release(self, cell: Cell) -> None:
        """The bytes of a forgotten cell are off the disk."""
        self.ledger.give(cell.charged)
        cell.charged = 0

    def punched(self, cell: Cell, blocks: Iterable[int]) -> None:
        """LEAVING blocks are off the disk."""
        gone = [b for b in blocks if cell.state[b] == LEAVING]
        for block in gone:
            cell.state[block] = ABSENT
        freed = cell.cost(gone)
        cell.charged -= freed
        self.ledger.give(freed)

    def __repr__(self) -> str:
        return f"<CellTable {len(self.cells)} cells {self.ledger!r} {self.policy!r}>"
