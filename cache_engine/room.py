"""Makes room: chooses who leaves (purely, under the table's lock), then removes it from the disk (without the lock).

A cell that is complete, or small enough to be one piece, leaves as a whole by unlink; single pieces of large
incomplete cells are punched, the voucher's bits cleared first. Both only under the exclusive kernel lock, so
never under a lease of another process, and never where a lease of this process has asked for the bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cache_engine import ofd
from cache_engine.block import BLOCK, runs_of
from cache_engine.cell import ABSENT, LEAVING, STALE, UNPROVED, Cell
from cache_engine.cell_files import CellFiles, Removal, close_all
from cache_engine.cell_table import CellTable
from cache_engine.policy import Key
from cache_engine.vouching import Vouching


@dataclass(slots=True)
class Victim:
    """A cell (`piece` None) or a piece of one that was marked as leaving."""

    cell: Cell
    key: Key
    piece: int | None
    size: int
    before: list[tuple[int, int]] = field(default_factory=list)
    """(block, its state until now), to put back where another process turns out to read it."""
    idle: int = -1
    """The descriptor that was kept of the cell; closed before the kernel is asked who else has it open."""


def choose(table: CellTable, shortfall: int, skip: set[Key]) -> list[Victim]:
    """Mark enough candidates as leaving, in the policy's order; none at all where all of them would not be enough.

    The table's lock is held.
    """
    victims: list[Victim] = []
    found = 0
    for key in table.policy.victims():
        if found >= shortfall:
            break
        victim = None if key in skip else _candidate(table.cells[key[0]], key, victims)
        if victim is not None:
            victims.append(victim)
            found += victim.size
    if found < shortfall:
        return []
    for victim in victims:
        _mark(table, victim)
    return victims


def _candidate(cell: Cell, key: Key, others: list[Victim]) -> Victim | None:
    piece = key[1]
    if cell.leaving or (cell.leases and (cell.whole or piece in cell.pins)):
        return None
    if cell.whole:
        return Victim(cell, key, None, cell.charged)
    blocks = cell.piece_range(piece)
    if cell.state.find(LEAVING, blocks.start, blocks.stop) >= 0:  # another thread's victim already
        return None
    size = cell.charged_in(piece)
    alone = cell.charged == cell.voucher_room + cell.extents + size
    if alone and not cell.leases and not any(other.cell is cell for other in others):
        return Victim(cell, key, None, cell.charged)
    return Victim(cell, key, piece, size) if size else None


def _mark(table: CellTable, victim: Victim) -> None:
    cell = victim.cell
    table.leaving += 1
    if victim.piece is None:
        cell.leaving = True
        victim.idle = table.take_idle(cell)
        return
    table.hold(cell)
    for block in cell.piece_range(victim.piece):
        state = cell.state[block]
        if state >= UNPROVED:
            table.set_absent(cell, block, LEAVING)
        elif state == STALE:
            cell.state[block] = LEAVING
        else:
            continue
        victim.before.append((block, state))


class Room:
    """The shell of eviction, and the bytes of unlinked files that somebody still has open."""

    def __init__(self, table: CellTable, files: CellFiles, vouching: Vouching) -> None:
        self._table = table
        self._files = files
        self._vouching = vouching
        self._lingering: list[tuple[int, Cell]] = []  # (our own descriptor, cell); the table's lock guards it

    def take(self, size: int) -> bool:
        """Take `size` bytes of the quota, evicting as needed; False where what can leave would not be enough."""
        skip: set[Key] = set()
        while True:
            self.collect()
            with self._table.lock:
                if self._table.ledger.take(size):
                    return True
                if size > self._table.ledger.quota:
                    return False
                victims = choose(self._table, size - self._table.ledger.free, skip)
                if not victims:
                    if not self._table.leaving:
                        return False
                    self._table.freed.wait()  # another thread is removing something
            self._evict(victims, skip)

    def free_on_disk(self, size: int) -> bool:
        """Evict at least `size` bytes, for a disk that is full before the quota is. False: nothing can leave."""
        with self._table.lock:
            victims = choose(self._table, size, set())
        self._evict(victims, set())
        return bool(victims)

    def shrink(self) -> None:
        """Evict until what is held fits the quota, as far as it can leave."""
        self.take(0)

    def trim(self, cell: Cell) -> None:
        """At start: punch what was written and never vouched for; what stays beyond the blocks is charged."""
        fd = self._files.open(cell.name, cell.obj.size)
        if fd is None:
            return
        try:
            if not cell.complete and ofd.try_exclusive(fd):
                self._punch_absent(cell, fd)
            excess = os.fstat(fd).st_blocks * 512 - (cell.charged - cell.voucher_room)
            self._table.charge_excess(cell, max(0, excess))
        finally:
            os.close(fd)

    def _punch_absent(self, cell: Cell, fd: int) -> None:
        try:
            for run in runs_of((b for b in range(cell.blocks) if cell.state[b] == ABSENT), cell.blocks):
                self._files.punch(fd, run.start * BLOCK, len(run) * BLOCK)
        except OSError:  # no holes on this file system, say: then the bytes stay, and are charged
            self._table.counts.disk_errors += 1

    def linger(self, fd: int, cell: Cell) -> None:
        """A forgotten cell that was unlinked, and that nobody in this process uses: release it, or keep it charged."""
        if fd >= 0 and ofd.open_elsewhere(fd):
            with self._table.lock:
                self._lingering.append((fd, cell))
            return
        if fd >= 0:
            os.close(fd)
        with self._table.lock:
            self._table.release(cell)
            self._table.freed.notify_all()

    def collect(self) -> None:
        """Release the unlinked bytes whose last lease in another process is gone."""
        if not self._lingering:
            return
        with self._table.lock:
            lingering, self._lingering = self._lingering, []
        for fd, cell in lingering:
            self.linger(fd, cell)

    def close(self) -> None:
        with self._table.lock:
            lingering, self._lingering = self._lingering, []
        for fd, _ in lingering:
            os.close(fd)

    @property
    def lingering_bytes(self) -> int:
        """With the table's lock held."""
        return sum(cell.charged for _, cell in self._lingering)

    def _evict(self, victims: list[Victim], skip: set[Key]) -> None:
        for victim in victims:
            removal = Removal(False)
            try:
                removal = self._remove(victim) if victim.piece is None else self._punch(victim, victim.piece)
            except OSError:
                with self._table.lock:
                    self._table.counts.disk_errors += 1
            finally:
                self._settle(victim, removal, skip)

    def _remove(self, victim: Victim) -> Removal:
        close_all([victim.idle])
        with self._vouching.turn(victim.cell.name):
            return self._files.remove_unless_leased(victim.cell.name)

    def _punch(self, victim: Victim, piece: int) -> Removal:
        cell = victim.cell
        blocks = cell.piece_range(piece)
        start, length = blocks.start * BLOCK, len(blocks) * BLOCK
        fd = cell.fd if cell.fd >= 0 else self._files.open(cell.name, cell.obj.size)
        if fd is None:
            return Removal(True)  # the file is gone, and its bytes with it
        try:
            return Removal(self._punch_locked(cell, fd, start, length))
        finally:
            if fd != cell.fd:
                os.close(fd)

    def _punch_locked(self, cell: Cell, fd: int, start: int, length: int) -> bool:
        if not ofd.try_exclusive(fd, start, length):
            return False
        try:
            if not self._vouching.save(cell, self._take_what_is_free):
                self._vouching.withdraw(cell)  # a full disk takes no new voucher: then none instead of a wrong one
            self._files.punch(fd, start, length)
        finally:
            ofd.unlock(fd, start, length)
        return True

    def _take_what_is_free(self, size: int) -> bool:
        with self._table.lock:
            return self._table.ledger.take(size)

    def _settle(self, victim: Victim, removal: Removal, skip: set[Key]) -> None:
        table, cell = self._table, victim.cell
        fd = -1
        with table.lock:
            table.leaving -= 1
            cell.leaving = cell.leaving and victim.piece is not None
            if removal.done:
                table.counts.evicted += 1
                table.counts.evicted_bytes += victim.size
                self._gone(victim, removal.fd)
            else:
                skip.add(victim.key)
                table.policy.touch(victim.key)
                for block, state in victim.before:
                    self._put_back(cell, block, state)
            if victim.piece is not None:
                fd = table.leave(cell, ())
            table.freed.notify_all()
        if fd >= 0:
            os.close(fd)

    def _gone(self, victim: Victim, watch: int) -> None:
        table, cell = self._table, victim.cell
        if victim.piece is None:
            table.forget(cell)
            if watch >= 0:
                self._lingering.append((watch, cell))
            else:
                table.release(cell)
            return
        table.policy.remove(victim.key)
        table.punched(cell, cell.piece_range(victim.piece))
        if cell.charged == cell.voucher_room + cell.extents:  # an empty file: it leaves by the key of piece 0
            table.policy.add(cell.key(0), near=cell.near)

    def _put_back(self, cell: Cell, block: int, state: int) -> None:
        if state >= UNPROVED:
            self._table.set_present(cell, block, cell.crcs[block], state)
        else:
            cell.state[block] = state
