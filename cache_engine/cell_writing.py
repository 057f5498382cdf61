"""Cells come onto the disk: files are made and written; what the disk refuses is counted and never raised.

Used by leases (lease.py) and the tier (tier.py). Mutable: `not_caching`, guarded by the table's lock.
"""

from __future__ import annotations

import errno

from cache_engine.cell import Cell
from cache_engine.cell_files import CellFiles, close_all, write_all
from cache_engine.cell_table import CellTable
from cache_engine.directory import Directory
from cache_engine.errors import InvalidValue
from cache_engine.room import Room
from cache_engine.vouching import Vouching

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class CellWriting:
    """The writing half of a tier. Safe from any thread."""

    def __init__(
        self, table: CellTable, files: CellFiles, vouching: Vouching, room: Room, directory: Directory
    ) -> None:
        self.table = table
        self.files = files
        self.vouching = vouching
        self.room = room
        self._directory = directory
        self.not_caching = ""
        """Why the last write failed; empty since one went well."""

    def ensure_file(self, cell: Cell) -> bool:
        """Open the cell's file, or make it; False where the disk does not let us."""
        with self.vouching.turn(cell.name):
            if cell.fd >= 0:
                return True
            if cell.on_disk or self.table.closed:  # it was there and could not be opened: leave it alone
                return False
            try:
                fd = self._create(cell)
            except (OSError, InvalidValue) as error:
                self.failed(error)
                return False
            with self.table.lock:
                cell.fd = fd
                cell.on_disk = True
            return True

    def write(self, fd: int, view: memoryview, offset: int) -> bool:
        """Write; on a full disk make room once and try once more. False: it cannot be written."""
        for attempt in range(2):
            try:
                write_all(fd, view, offset)
            except OSError as error:
                self.failed(error)
                if attempt or error.errno not in _DISK_FULL or not self.room.free_on_disk(len(view)):
                    return False
            else:
                self.not_caching = ""
                return True
        return False

    def _create(self, cell: Cell) -> int:
        try:
            return self.files.create(cell.name, cell.obj.size)
        except FileNotFoundError:  # the first cell of its shard, or somebody removed the folder
            self._forget_lost_shards()
            if not self._directory.still_owned():
                self._directory.own()
            self.files.make_shard(cell.name)
            return self.files.create(cell.name, cell.obj.size)

    def _forget_lost_shards(self) -> None:
        """The cells of folders that are gone are gone; those with an open file stay charged until it closes."""
        with self.table.lock:
            cells = [cell for cell in self.table.cells.values() if cell.on_disk]
        shards = self.files.shards()  # listed after the cells: a folder made since then has none of them
        idle = []
        with self.table.lock:
            for cell in cells:
                if cell.name[:2] in shards or cell.leaving or cell.dropped:
                    continue
                self.table.counts.lost_cells += 1
                idle.append(self.table.take_idle(cell))
                self.table.forget(cell)
                if not cell.leases:
                    self.table.release(cell)
        close_all(idle)

    def failed(self, error: Exception) -> None:
        """The disk refused something."""
        with self.table.lock:
            self.table.counts.disk_errors += 1
            self.not_caching = f"{type(error).__name__}: {error}"
