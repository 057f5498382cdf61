"""The disk tier: cells under a hard quota in a directory that this process alone writes.

This module joins the parts: `cell_table.py` (memory and its lock), `room.py` (eviction), `vouching.py` and
`cell_files.py` (the disk), `directory.py` (ownership), `lease.py` (what callers hold). The cache is never needed
for a right answer: whatever the disk does, a caller sees "not cached", a count, and no error.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path

from cache_engine.block import BLOCKS_IN_SPAN, ObjectId
from cache_engine.cell import Cell
from cache_engine.cell_files import CellFiles, close_all
from cache_engine.cell_table import CellTable
from cache_engine.cell_writing import CellWriting
from cache_engine.directory import Clean, Directory, scan
from cache_engine.lease import Lease
from cache_engine.policies import POLICIES
from cache_engine.quota import piece_blocks
from cache_engine.room import Room
from cache_engine.tier_stats import TierStats
from cache_engine.vouching import Vouching


class DiskTier:
    """One level of storage: a directory and its quota in bytes. Safe from any thread."""

    def __init__(self, directory: Path, quota: int, *, boot_id: str, idle_files: int = 0) -> None:
        """Own the directory and count what lies there. Raises InvalidValue where another process owns it.

        `idle_files`: files of cells kept open between leases at the most.
        """
        self._directory = Directory(os.fspath(directory))
        self._boot = boot_id
        self.table = CellTable(quota, POLICIES["lru"](), piece_blocks(quota, BLOCKS_IN_SPAN))
        self.table.idle_files = idle_files
        self.files = CellFiles(self._directory.path)
        self.vouching = Vouching(self.table, self.files)
        self.room = Room(self.table, self.files, self.vouching)
        self.writing = CellWriting(self.table, self.files, self.vouching, self.room, self._directory)
        self._directory.own()
        self._restore(self._directory.take_clean_mark(boot_id))

    def _restore(self, clean: Clean) -> None:
        for found in sorted(scan(self.files.root), key=lambda found: found.used_ns):
            cell = self.table.restore(found.voucher, found.name, clean.proved(found.name))
            if found.allocated > cell.charged - cell.voucher_room:
                self.room.trim(cell)
        self.room.shrink()

    @property
    def quota(self) -> int:
        return self.table.ledger.quota

    @property
    def used(self) -> int:
        return self.table.ledger.used

    def lease(self, obj: ObjectId, *, label: str = "", near: bool = False) -> Lease:
        """Hold the cell of that object version, whatever it has of it; it is not evicted while the lease is open.

        `label` (a Dataset's uid) is charged for its bytes; `near` says that this worker does not own it for that
        label. Opens the file where there is one, and does no other I/O; any disk error means: nothing is ready.
        """
        if not obj.size:
            return Lease(self, self._outside(obj))
        name = obj.cell_name
        while True:
            with self.table.lock:
                cell = self.table.enter(obj, name)
                self.table.charge_to(cell, label, near)
                if cell.whole:  # of other cells the pieces that are asked for are touched
                    self.table.policy.touch(cell.key(0))
                opened = cell.fd >= 0 or not cell.on_disk
                kept = cell.fd if cell.leases == 1 else -1
            if kept >= 0 and not self.files.intact(kept, cell.obj.size):
                opened = not self._lost(cell)
            elif not opened:
                opened = self._open(cell)
            if opened:
                return Lease(self, cell)

    def held(self, label: str, *, near: bool = False) -> int:
        """Bytes of objects present for a label: what this worker owns of it, or its near copies."""
        with self.table.lock:
            return self.table.held(label, near)

    def objects(self, label: str) -> Iterator[tuple[ObjectId, int]]:
        """(object version, bytes present) for each cell of a label."""
        with self.table.lock:
            found = [(cell.obj, cell.present_bytes) for cell in self.table.labelled(label) if cell.present]
        return iter(found)

    def drop(self, obj: ObjectId) -> None:
        """Remove the cell at once. Who has it open reads on; its bytes stay charged until then."""
        with self.table.lock:
            cell = self.table.cells.get(obj.cell_name)
        if cell is not None:
            self._drop(cell)

    def drop_label(self, label: str) -> None:
        """The Dataset is gone: cells that no other label shares go too."""
        with self.table.lock:
            cells = list(self.table.labelled(label))
        for cell in cells:
            with self.table.lock:
                rest = cell.labels_without(label)
                rest.pop("", None)  # nobody's label alone keeps nothing: an old snapshot of that Dataset was read
                if rest:
                    self.table.relabel(cell, rest)
            if not rest:
                self._drop(cell)

    def drop_unlabelled(self, sources: Collection[str]) -> None:
        """Cells of these sources that count for nobody go: versions that a Dataset no longer had before it was gone."""
        with self.table.lock:
            cells = [c for c in self.table.labelled("") if len(c.labels) == 1 and c.obj.source in sources]
        for cell in cells:
            self._drop(cell)

    def retire(self, obj: ObjectId, label: str) -> None:
        """The label's Dataset no longer has this version: it counts for nobody and leaves before what is owned."""
        with self.table.lock:
            cell = self.table.cells.get(obj.cell_name)
            if cell is not None and label in cell.labels and not cell.leaving:
                self.table.relabel(cell, cell.labels_without(label) or {"": True})

    def labels(self) -> dict[str, dict[str, int]]:
        """Bytes present by label: {"cached": owned here, "near": near copies}."""
        with self.table.lock:
            return self.table.by_label()

    def tidy(self) -> None:
        """Save the vouchers whose cell was labelled or discarded from since; release what lingers. Does I/O."""
        self.room.collect()
        with self.table.lock:
            names = list(self.table.unsaved)
        for name in names:
            with self.table.lock:
                cell = self.table.cells.get(name)
                if cell is None or cell.leaving:
                    continue
                self.table.hold(cell)
            self.vouching.save(cell, self.room.take)
            self.leave(cell, set())

    def stats(self) -> TierStats:
        with self.table.lock:
            return TierStats(
                quota=self.quota,
                used=self.used,
                cells=len(self.table.cells),
                near=self.table.near_bytes,
                lingering=self.room.lingering_bytes,
                not_caching=self.writing.not_caching,
                counts=asdict(self.table.counts),
            )

    def close(self) -> None:
        """A clean stop: every voucher saved, then the clean mark. Open leases stay readable; they write no more."""
        self.tidy()
        self.vouching.stop()
        self.room.close()
        with self.table.lock:
            unproved = [cell.name for cell in self.table.cells.values() if cell.proved < cell.present]
            clean = not self.table.unsaved
            idle = [self.table.take_idle(cell) for cell in self.table.idle()]
        close_all(idle)
        try:
            if clean and self._directory.still_owned():
                self._directory.write_clean_mark(self._boot, unproved)
        except OSError:
            pass  # no mark: the next start compares every CRC
        self._directory.disown()

    def leave(self, cell: Cell, pinned: set[int]) -> None:
        """A lease closes."""
        with self.table.lock:
            fd = self.table.leave(cell, pinned)
            unlinked = cell.dropped and not cell.leases and cell.charged > 0
        if unlinked:
            self.room.linger(fd, cell)
        elif fd >= 0:
            os.close(fd)

    def _outside(self, obj: ObjectId) -> Cell:
        """A cell that never enters the table."""
        cell = Cell(obj, obj.cell_name, 1)
        cell.dropped = True
        cell.leases = 1
        return cell

    def _open(self, cell: Cell) -> bool:
        """Open the file for a cell just entered. False: it was lost and is forgotten; enter again."""
        try:
            fd = self.files.open(cell.name, cell.obj.size)
        except OSError as error:
            self.writing.failed(error)
            return True
        if fd is None:
            return not self._lost(cell)
        with self.table.lock:
            if cell.fd < 0:
                cell.fd, fd = fd, -1
        if fd >= 0:
            os.close(fd)
        return True

    def _lost(self, cell: Cell) -> bool:
        """A leased cell without its file, or of another length: forgotten, the lease given back. False: it stays."""
        with self.table.lock:
            self.table.counts.lost_cells += 1
        if not self._drop(cell):
            return False
        self.leave(cell, set())
        return True

    def _drop(self, cell: Cell) -> bool:
        """Unlink the cell and forget it, whoever uses it. False where the file system refuses: it stays."""
        with self.table.lock:
            if cell.leaving or cell.dropped:
                return True
            cell.leaving = True
            self.table.hold(cell)
            self.table.leaving += 1
        fd, unlinked = self._unlink(cell)
        with self.table.lock:
            self.table.leaving -= 1
            cell.leaving = False
            if cell.fd < 0 and fd is not None:
                cell.fd, fd = fd, None
            if unlinked:
                self.table.forget(cell)
            self.table.freed.notify_all()
        if fd is not None:
            os.close(fd)
        self.leave(cell, set())
        return unlinked

    def _unlink(self, cell: Cell) -> tuple[int | None, bool]:
        """(a descriptor to watch the nameless file by, whether it has no name any more)."""
        fd = None
        try:
            with self.vouching.turn(cell.name):
                if cell.fd < 0:
                    fd = self.files.open(cell.name, cell.obj.size)
                self.files.remove(cell.name)
        except OSError as error:
            self.writing.failed(error)
            return fd, False
        return fd, True

    def __repr__(self) -> str:
        return f"<DiskTier {self._directory.path} {self.table!r}>"
