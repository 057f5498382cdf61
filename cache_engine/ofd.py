"""Locks of the kernel that belong to an open file (Linux OFD locks): what a lease is between processes.

They die with the last descriptor of that open file, so with their process, whatever kills it; and unlike
POSIX record locks, closing another descriptor of the same file does not drop them. A shared lock needs a
file open for reading, an exclusive one a file open for writing. Nothing here ever waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct

_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)  # Python 3.11 has no name for it
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux; l_pid must be 0 for OFD locks
_BUSY = (errno.EAGAIN, errno.EACCES)  # of a lock; EACCES of a lease says "not your file"


def _words(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


SHARED_WHOLE = _words(fcntl.F_RDLCK, 0, 0)
"""The lock words of a shared lock on a whole file, made once: a reader of small files takes 10^5 of them."""


def try_shared(fd: int) -> bool:
    """Shared lock on the whole file; False where somebody holds an exclusive one on any byte of it."""
    return _set(fd, SHARED_WHOLE)


def try_exclusive(fd: int, start: int = 0, length: int = 0) -> bool:
    """Exclusive lock on `length` bytes from `start` (0: all to come); False where anybody else has any lock there."""
    return _set(fd, _words(fcntl.F_WRLCK, start, length))


def unlock(fd: int, start: int = 0, length: int = 0) -> None:
    """Give up whatever this open file has locked of the range."""
    _set(fd, _words(fcntl.F_UNLCK, start, length))


def open_elsewhere(fd: int) -> bool:
    """Anybody else still has this file (without a name by now) open or mapped, locked or not.

    A kernel lease for writing is given only where there is no other open file. Its break would come as SIGIO, which
    kills: SIGURG, which nobody notices, is asked for instead. Where the file system knows no leases, the lock decides.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno in _BUSY[:1] or not try_exclusive(fd)
    return False


def _set(fd: int, words: bytes) -> bool:
    try:
        fcntl.fcntl(fd, _SETLK, words)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True
