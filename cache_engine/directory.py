"""A cache directory as a whole: who owns it, whether its last owner stopped cleanly, and what lies in it.

    lock        held (OFD, exclusive) by the owning process; says its pid
    clean       written at a clean stop, removed at start: the boot id, then the cells with blocks still unproved
    cells/ab/   the cells and their vouchers (cell_files.py)

No fsync anywhere: bytes written before a clean stop in this same boot are in the page cache or on the disk;
after anything else the CRC of every block is compared before its first use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cache_engine import ofd
from cache_engine.cell_files import TEMPORARY, VOUCHER, own_name, read_file, write_all
from cache_engine.errors import InvalidValue
from cache_engine.voucher import Voucher, decode

_LOCK = "lock"
_CLEAN = "clean"


def boot_id() -> str:
    """What the kernel calls this boot. For the edge: below it, a boot id is an argument."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


@dataclass(frozen=True, slots=True)
class Clean:
    """What the clean mark says."""

    trusted: bool
    """The last owner stopped cleanly, in this boot."""
    unproved: frozenset[str] = frozenset()
    """Cells whose blocks nobody had compared by then."""

    def proved(self, name: str) -> bool:
        return self.trusted and name not in self.unproved


@dataclass(frozen=True, slots=True)
class Found:
    """A cell with a voucher that vouches for it."""

    name: str
    voucher: Voucher
    allocated: int
    """Bytes of the disk that the cell takes, as the file system counts them."""
    used_ns: int
    """Last use as far as the file system knows, nanoseconds since the epoch."""


class Directory:
    """Ownership of one cache directory. Not for several threads: opened at start, closed at stop."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def own(self) -> None:
        """Make the directory and become its only owner. Raises InvalidValue where that cannot be."""
        try:
            os.makedirs(self.path, mode=0o755, exist_ok=True)
            fd = os.open(self._in(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidValue(
                f"{self.path} cannot be a cache directory: {error.strerror}; name one that this process may write to"
            ) from error
        if not ofd.try_exclusive(fd):
            holder = _holder(fd)
            os.close(fd)
            raise InvalidValue(
                f"the cache directory {self.path} belongs to {holder}; stop that process or name another directory"
            )
        os.ftruncate(fd, 0)
        write_all(fd, memoryview(json.dumps({"pid": os.getpid()}).encode()), 0)
        self._close_lock()
        self._fd = fd

    def still_owned(self) -> bool:
        """The lock file that this process holds is the one that lies in the directory."""
        try:
            there = os.stat(self._in(_LOCK))
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def take_clean_mark(self, boot: str) -> Clean:
        """Read the mark and remove it: from now on a stop is unclean until the mark is written again."""
        raw = read_file(self._in(_CLEAN))
        if raw is None:
            return Clean(trusted=False)
        os.unlink(self._in(_CLEAN))
        try:
            mark = json.loads(raw)
            return Clean(mark["boot"] == boot, frozenset(mark["unproved"]))
        except (ValueError, KeyError, TypeError):
            return Clean(trusted=False)

    def write_clean_mark(self, boot: str, unproved: Iterable[str]) -> None:
        """The last thing a clean stop does, once every voucher is saved."""
        raw = json.dumps({"boot": boot, "unproved": sorted(unproved)}).encode()
        fd = os.open(self._in(_CLEAN), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, memoryview(raw), 0)
        finally:
            os.close(fd)

    def disown(self) -> None:
        self._close_lock()

    def _close_lock(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _in(self, name: str) -> str:
        return os.path.join(self.path, name)

    def __repr__(self) -> str:
        return f"<Directory {self.path} {'owned' if self._fd >= 0 else 'not owned'}>"


def scan(root: str) -> Iterator[Found]:
    """Every cell that its voucher vouches for; whatever else is ours under `root` is removed, nobody else's is."""
    try:
        shards = sorted(entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return
    for shard in shards:
        yield from _scan_shard(shard)


def _scan_shard(shard: str) -> Iterator[Found]:
    names: dict[str, set[str]] = {}
    for file in os.listdir(shard):
        own = own_name(file)
        if own and own[0].startswith(os.path.basename(shard)):
            names.setdefault(own[0], set()).add(own[1])
    for name, suffixes in names.items():
        path = f"{shard}/{name}"
        found = _found(path, name) if {"", VOUCHER} <= suffixes else None
        if found is not None:
            yield found
        wrong = suffixes if found is None else suffixes & {TEMPORARY}
        for suffix in sorted(wrong, reverse=True):  # voucher before cell
            _discard(path + suffix)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # where it cannot be removed nothing can be cached either: the first write will say so
        pass


def _found(path: str, name: str) -> Found | None:
    try:
        voucher = decode(read_file(path + VOUCHER) or b"", name)
        stat = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    if voucher is None or 1 not in voucher.present or stat.st_size != voucher.obj.size:
        return None
    return Found(name, voucher, stat.st_blocks * 512, max(stat.st_atime_ns, stat.st_mtime_ns))


def _holder(fd: int) -> str:
    """The owner as its lock file names it, in words."""
    try:
        pid = int(json.loads(os.pread(fd, 4096, 0))["pid"])
    except (ValueError, KeyError, TypeError):
        return "another process"
    raw = (read_file(f"/proc/{pid}/cmdline") or b"").replace(b"\0", b" ")
    command = " ".join(raw.decode(errors="replace").split())[:80]
    return f"process {pid}" + (f" ({command})" if command else "")
