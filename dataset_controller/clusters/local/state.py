"""The state directory of one `forebay up`: who owns it, and the note that says where the controller answers.

Layout: lock (held by the kernel for the owner's life, holds its pid), controller.json (while it answers), state.db,
manifests/, workers/wN/ (cells), logs/. Mode 0700: manifests name what somebody else may not know.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cache_engine.discovery import CONTROLLER_FILE
from cache_engine.errors import ControllerUnavailable, InvalidValue

LOCK = "lock"
_FLOCK = "hh4xqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length (0: to the end), pid."""
_WHOLE_FILE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""A lock of the open file, which others can ask about without taking it, as flock() cannot."""


class StateDirectory:
    """A state directory that this process owns, until `release` or its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _own(path)

    def __repr__(self) -> str:
        return f"<StateDirectory {self.path} pid={os.getpid()}>"

    def announce(self, document: Mapping[str, Any]) -> None:
        """Say where the controller answers; readers see the old note or the new one, never a half."""
        target, partial = self.path / CONTROLLER_FILE, self.path / f".{CONTROLLER_FILE}"
        partial.write_text(json.dumps(dict(document)) + "\n")
        os.replace(partial, target)

    def release(self) -> None:
        """Take the note away and let the next one in."""
        (self.path / CONTROLLER_FILE).unlink(missing_ok=True)
        os.close(self._lock)


def owner_of(path: Path) -> int:
    """The pid of the process that owns this state directory now, 0 for none."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        held = struct.unpack(_FLOCK, asked)[0] != fcntl.F_UNLCK
        return int(os.pread(descriptor, 32, 0) or 0) if held else 0
    finally:
        os.close(descriptor)


def stop_owner(path: Path, timeout: float) -> int:
    """Ask the owner to stop and wait until it has; its pid, 0 where there was none. Raises ControllerUnavailable."""
    pid = owner_of(path)
    if not pid:
        return 0
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return pid
    try:
        if owner_of(path) == pid:  # the pidfd was taken while it still owned the lock, so it is that process
            signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], timeout)[0]:
            raise ControllerUnavailable(f"process {pid} on {path} has not stopped in {timeout:.0f} s; look at its log")
    finally:
        os.close(process)
    return pid


def _own(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidValue(
            f"{path} cannot be the state directory: {error.strerror}; choose one with --state"
        ) from error
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except BlockingIOError as error:
        os.close(descriptor)
        message = f"process {owner_of(path)} runs a controller on {path}; stop it with `forebay down`, or use --state"
        raise InvalidValue(message) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
