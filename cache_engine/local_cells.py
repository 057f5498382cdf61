"""The cells of a worker on this host, read directly by other processes: read-only, under a lease of the kernel.

The order is: open the cell, lock it (shared), then read its voucher; so whatever the voucher says stays on the disk
until the lease goes. The worker may unlink a cell at any moment before the lock: then the file has no name left, or
the lock is refused, and the cell is not cached. Every block's CRC is compared once per open, after the bytes
are in the caller's memory.

Small objects have a shorter way, without the lock: one read of all bytes, which their CRC proves whatever happens to
the cell meanwhile. The worker counts unlinked bytes as used for as long as anybody has them open, locked or not.
"""

from __future__ import annotations

import os
from array import array
from types import TracebackType
from typing import NamedTuple

from crc32c import crc32c

from cache_engine import ofd
from cache_engine.block import BLOCK, ObjectId, block_length, blocks_of
from cache_engine.cell_files import CELLS, VOUCHER, read_file
from cache_engine.errors import CorruptBlock
from cache_engine.voucher import Voucher, decode, single_crc

_KNOWN_MOST = 1 << 18
"""CRCs of small objects remembered: about 50 MB of them, then forgotten all at once."""
_READ = os.O_RDONLY | os.O_CLOEXEC


class BadBlock(CorruptBlock):
    """A block of a local cell is not what is vouched for: tell the worker, and read it from there."""

    def __init__(self, name: str, block: int) -> None:
        super().__init__(
            f"block {block} of the local cell {name} does not have its CRC; "
            "read it from the worker, which drops and fetches it again"
        )
        self.block = block


class LocalCell:
    """One open cell and its lease. Bytes come out checked, or not at all. For one thread at a time."""

    def __init__(self, obj: ObjectId, fd: int, voucher: Voucher) -> None:
        self._obj = obj
        self._fd = fd
        self._voucher = voucher
        self._checked = bytearray(len(voucher.present))  # one byte a block: its CRC was compared since the open

    @property
    def complete(self) -> bool:
        return self._voucher.complete

    def has(self, start: int, stop: int) -> bool:
        """All bytes [start, stop) are in blocks that are vouched for."""
        blocks = blocks_of(start, stop)
        return self._voucher.present.count(1, blocks.start, blocks.stop) == len(blocks)

    def readinto(self, view: memoryview, start: int) -> None:
        """Fill `view` from offset `start`; `has` said yes for that range. Raises BadBlock."""
        stop = start + len(view)
        for block in blocks_of(start, stop):
            first = max(start, block * BLOCK)
            last = min(stop, block * BLOCK + block_length(self._obj.size, block))
            self._read(block, view[first - start : last - start], first)

    def _read(self, block: int, view: memoryview, offset: int) -> None:
        if self._checked[block]:
            self._fill(block, view, offset)
        elif len(view) == block_length(self._obj.size, block):
            self._fill(block, view, offset)
            self._check(block, view)
        else:
            whole = memoryview(bytearray(block_length(self._obj.size, block)))
            self._fill(block, whole, block * BLOCK)
            self._check(block, whole)
            inside = offset - block * BLOCK
            view[:] = whole[inside : inside + len(view)]

    def _fill(self, block: int, view: memoryview, offset: int) -> None:
        try:
            count = os.preadv(self._fd, [view], offset)
        except OSError as error:
            raise BadBlock(self._obj.cell_name, block) from error
        if count != len(view):
            raise BadBlock(self._obj.cell_name, block)

    def _check(self, block: int, view: memoryview) -> None:
        if crc32c(view) != self._voucher.crcs[block]:
            raise BadBlock(self._obj.cell_name, block)
        self._checked[block] = 1

    def close(self) -> None:
        """Give the lease back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> LocalCell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalCell {self._obj.cell_name} {self._voucher.present.count(1)}/{len(self._voucher.present)} blocks>"


class SmallCell(NamedTuple):
    """A cell of one block and the CRC that proves it: a fact of the identity, so it never changes."""

    path: str
    size: int
    crc: int

    def read(self) -> bytes | None:
        """The object's bytes, proved by its CRC; None where it is not cached any more. Raises BadBlock."""
        path, size, crc = self
        try:
            fd = os.open(path, _READ)
        except OSError:
            return None
        try:
            body = os.read(fd, size)
        except OSError:
            return None
        finally:
            os.close(fd)
        return body if crc32c(body) == crc else _read_again(self)


class LocalCells:
    """The cell directory of a worker on this host. No descriptor of its own: safe in any thread and forked child."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = os.path.join(os.fspath(directory), CELLS)
        self._known: dict[str, int] = {}  # cell name -> CRC of its only block

    def open(self, obj: ObjectId) -> LocalCell | None:
        """The cell of exactly this object version, leased; None where it is not cached, whatever the reason."""
        if not obj.size:
            return LocalCell(obj, -1, Voucher(obj, b"", array("I"), {}))
        name = obj.cell_name
        path = self._path(name)
        try:
            fd = os.open(path, _READ)
        except OSError:
            return None
        voucher = self._vouched(fd, path, obj, name)
        if voucher is None:
            os.close(fd)
            return None
        return LocalCell(obj, fd, voucher)

    def small(self, obj: ObjectId) -> SmallCell | None:
        """How to read a cached object of one block; keep it: its `read` needs neither voucher nor identity again."""
        if not 0 < obj.size <= BLOCK:
            return None
        name = obj.cell_name
        return _vouched_small(self._path(name), obj.size)

    def read_small(self, obj: ObjectId) -> bytes | None:
        """A whole object of at most one block; None where it is not cached. Raises BadBlock."""
        if not obj.size:
            return b""
        name = obj.cell_name
        crc = self._known.get(name)
        if crc is not None:
            return SmallCell(self._path(name), obj.size, crc).read()
        small = self.small(obj)
        if small is None:
            return None
        if len(self._known) >= _KNOWN_MOST:
            self._known.clear()
        self._known[name] = small.crc
        return small.read()

    def _vouched(self, fd: int, path: str, obj: ObjectId, name: str) -> Voucher | None:
        try:
            if not ofd.try_shared(fd):
                return None
            stat = os.fstat(fd)
            if stat.st_size != obj.size or not stat.st_nlink:
                return None
            voucher = decode(read_file(path + VOUCHER) or b"", name)
        except OSError:
            return None
        return voucher if voucher is not None and voucher.obj == obj else None

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"

    def __repr__(self) -> str:
        return f"<LocalCells {self._root}>"


def _vouched_small(path: str, size: int) -> SmallCell | None:
    try:
        raw = read_file(path + VOUCHER)
    except OSError:
        return None
    crc = None if raw is None else single_crc(raw, bytes.fromhex(path[-32:]), size)
    return None if crc is None else SmallCell(path, size, crc)


def _read_again(small: SmallCell) -> bytes | None:
    """The first read did not give the object: the cell left and is perhaps being filled again, or it is damaged."""
    if _vouched_small(small.path, small.size) is None:
        return None
    try:
        body = read_file(small.path)
    except OSError:
        return None
    if body is None or len(body) != small.size:
        return None
    if crc32c(body) != small.crc:
        raise BadBlock(small.path[-32:], 0)
    return body
