"""Brings the vouchers on the disk up to what the table says: one writer a cell, newest state only.

`turn(name)` orders the file operations of one cell (create, save, remove), so that no voucher appears after its
cell is gone. It guards no memory; threads that do I/O take it, never while they hold the table's lock, and
never while they wait for room. 64 turns are shared by all cells, by name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cache_engine.cell import Cell
from cache_engine.cell_files import CellFiles
from cache_engine.cell_table import CellTable
from cache_engine.quota import allocated
from cache_engine.voucher import encode

Take = Callable[[int], bool]
"""Takes bytes of the quota, perhaps by evicting; False where there is no room."""
_TURNS = 64


class Vouching:
    """Saves vouchers within the quota."""

    def __init__(self, table: CellTable, files: CellFiles) -> None:
        self._table = table
        self._files = files
        self._turns = [threading.Lock() for _ in range(_TURNS)]

    def turn(self, name: str) -> threading.Lock:
        return self._turns[int(name[-2:], 16) % _TURNS]

    def stop(self) -> None:
        """Nothing is created or saved from now on, and whatever was on its way is done when this returns."""
        with self._table.lock:
            self._table.closed = True
        for turn in self._turns:
            with turn:
                pass

    def save(self, cell: Cell, take: Take) -> bool:
        """Make the disk say what the table says. False where it does not: unlisted, no room, disk error.

        The new voucher needs room beside the old one for a moment; without room, the old one goes first:
        a process killed in between loses the cell, never the quota or a right byte.
        """
        with self._table.lock:
            if cell.saved == cell.changes:
                return True
            room, _ = cell.fixed_cost()
            more = max(0, room - cell.voucher_room)
        if not self._grow(cell, more, take):
            return False
        beside = room if cell.vouched and take(room) else 0
        try:
            with self.turn(cell.name):
                return self._save_in_turn(cell, room, replace=beside > 0)
        except OSError:
            with self._table.lock:
                self._table.counts.disk_errors += 1
            return False
        finally:
            with self._table.lock:
                self._table.ledger.give(beside)

    def withdraw(self, cell: Cell) -> None:
        """Take the voucher off the disk: the cell holds nothing for anybody who reads it from there."""
        with self.turn(cell.name):
            self._files.remove_voucher(cell.name)
            self._saved(cell, -1, vouched=False)

    def _grow(self, cell: Cell, more: int, take: Take) -> bool:
        if not more:
            return True
        if not take(more):
            return False
        with self._table.lock:
            cell.voucher_room += more
            cell.charged += more
        return True

    def _save_in_turn(self, cell: Cell, room: int, replace: bool) -> bool:
        with self._table.lock:
            if cell.dropped or not cell.on_disk or self._table.closed:
                return False
            changes, voucher, vouched = cell.changes, cell.voucher(), cell.vouched
        if vouched and not (replace and any(voucher.present)):
            self._files.remove_voucher(cell.name)
            self._saved(cell, -1, vouched=False)
        if any(voucher.present):
            raw = encode(voucher, cell.name)
            if allocated(len(raw)) > room:  # labels were added since room was taken; the next save has it
                return False
            self._files.save_voucher(cell.name, raw)
        self._saved(cell, changes, vouched=any(voucher.present))
        return True

    def _saved(self, cell: Cell, changes: int, vouched: bool) -> None:
        with self._table.lock:
            cell.saved = changes
            cell.vouched = vouched
            if cell.changes == changes:
                self._table.unsaved.discard(cell.name)
