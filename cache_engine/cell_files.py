"""The files of the cells in one directory: `cells/ab/NAME` the bytes, `cells/ab/NAME.voucher` what vouches for them.

Every function is one short sequence of system calls, in the order that makes any interruption harmless: data
before voucher, voucher away before data. Errors of the operating system pass through, the tier decides what they
mean; a file that is simply not there is an answer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from cache_engine import ofd

CELLS = "cells"
VOUCHER = ".voucher"
TEMPORARY = ".voucher.tmp"
CELL_NAME = re.compile(r"[0-9a-f]{32}")
_OWN_NAME = re.compile(r"([0-9a-f]{32})(\.voucher(?:\.tmp)?)?")
_PUNCH_KEEPING_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Removal(NamedTuple):
    """`done`: the cell has no name any more; then `fd` watches what somebody still has open, -1 for nobody."""

    done: bool
    fd: int = -1


class CellFiles:
    """The cells of one cache directory, as files. No state but the path; safe from any thread."""

    def __init__(self, directory: str) -> None:
        self.root = os.path.join(directory, CELLS)

    def path(self, name: str) -> str:
        return f"{self.root}/{name[:2]}/{name}"

    def open(self, name: str, size: int) -> int | None:
        """A descriptor of the cell, or None where no file of exactly that length lies there."""
        try:
            fd = os.open(self.path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if self.intact(fd, size):
            return fd
        os.close(fd)
        return None

    def intact(self, fd: int, size: int) -> bool:
        """Whether the open file still has its name and exactly that length."""
        stat = os.fstat(fd)
        return stat.st_size == size and stat.st_nlink > 0

    def create(self, name: str, size: int) -> int:
        """A new sparse cell. A leftover of that name is unlinked, never written over: somebody may have it open."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(self.path(name), flags, 0o644)
        except FileExistsError:
            self._unlink(name)
            fd = os.open(self.path(name), flags, 0o644)
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            self._unlink(name)
            raise
        return fd

    def save_voucher(self, name: str, raw: bytes) -> None:
        """Put the voucher in place in one step. Where that fails, the one before is still there."""
        temporary = f"{self.path(name)}{TEMPORARY}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, memoryview(raw), 0)
            os.rename(temporary, f"{self.path(name)}{VOUCHER}")
        except OSError:
            _gone(temporary)
            raise
        finally:
            os.close(fd)

    def load_voucher(self, name: str) -> bytes | None:
        return read_file(f"{self.path(name)}{VOUCHER}")

    def remove_voucher(self, name: str) -> None:
        _gone(f"{self.path(name)}{VOUCHER}")

    def remove_unless_leased(self, name: str) -> Removal:
        """Unlink voucher and cell under the exclusive lock, unless another process holds a lease.

        The lock is held until the file has no name: who opened it just before finds it locked, or nameless.
        """
        try:
            fd = os.open(self.path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self.remove_voucher(name)
            return Removal(True)
        try:
            if not ofd.try_exclusive(fd):
                os.close(fd)
                return Removal(False)
            self.remove(name)
            if ofd.open_elsewhere(fd):
                return Removal(True, fd)
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        return Removal(True)

    def remove(self, name: str) -> None:
        """Unlink voucher and cell, whoever has it open: an open file keeps its bytes until it is closed."""
        self.remove_voucher(name)
        self._unlink(name)

    def punch(self, fd: int, start: int, length: int) -> None:
        """Give the bytes of a range back to the file system; they read as zeros from now on."""
        if _fallocate(fd, _PUNCH_KEEPING_SIZE, start, length) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def shards(self) -> set[str]:
        """The names of the sub-folders that exist."""
        try:
            return set(os.listdir(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def make_shard(self, name: str) -> None:
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)

    def _unlink(self, name: str) -> None:
        _gone(self.path(name))


def own_name(name: str) -> tuple[str, str] | None:
    """(cell name, suffix) of a file that this module made; None for anybody else's."""
    match = _OWN_NAME.fullmatch(name)
    return (match[1], match[2] or "") if match else None


def write_all(fd: int, view: memoryview, offset: int) -> None:
    """pwrite until everything is written; a write that takes nothing is a full disk."""
    while view:
        written = os.pwrite(fd, view, offset)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, offset = view[written:], offset + written


def read_file(path: str, dir_fd: int | None = None) -> bytes | None:
    """A small file as a whole; None where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    try:
        raw = os.read(fd, 4096)
        while len(raw) % 4096 == 0 and (more := os.read(fd, max(4096, len(raw)))):
            raw += more
        return raw
    finally:
        os.close(fd)


def _gone(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors; -1 stands for none."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)
