"""A piece of a file in memory, and one that is on its way there.

`file_object.py` consumes them. One thread a window of 1 to 64 MiB costs nothing against the transfer (60 us
against 1 ms), needs no pool that a fork would break, and ends with its window.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from cache_engine.errors import CacheEngineError
from cache_engine.reading import ByNumber


def buffer_of(size: int, spare: memoryview | None = None) -> memoryview:
    """`size` bytes: the beginning of `spare`, else new ones (whose first use costs as much again as filling them)."""
    if spare is not None and size <= spare.nbytes:
        return spare[:size]
    return memoryview(bytearray(size))


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes [start, stop) of a file."""

    start: int
    stop: int
    view: memoryview

    @property
    def middle(self) -> int:
        return (self.start + self.stop) // 2

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.stop

    def copy(self, offset: int, into: memoryview) -> int:
        """Copy from `offset` on as much as both sides have; returns how many bytes."""
        count = min(len(into), self.stop - offset)
        begin = offset - self.start
        into[:count] = self.view[begin : begin + count]
        return count


class Ahead:
    """A Piece under way in a thread of its own, which ends by itself, wanted or not.

    Mutable: `_piece` and `seconds`, written by that thread alone before `_landed` is set.
    """

    def __init__(self, reader: ByNumber, index: int, start: int, stop: int, spare: memoryview | None = None) -> None:
        """`spare`: a buffer that nobody uses any more, taken where it is large enough."""
        self.start = start
        self.stop = stop
        self.seconds = 0.0
        """How long the fetch took; to be read once it has landed."""
        self._pid = os.getpid()
        self._piece: Piece | None = None
        self._landed = threading.Event()
        args = reader, index, buffer_of(stop - start, spare)
        threading.Thread(target=self._run, args=args, name="readahead", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Ahead {self.start}-{self.stop} {'landed' if self._landed.is_set() else 'under way'}>"

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.stop

    @property
    def under_way(self) -> bool:
        return self._pid == os.getpid() and not self._landed.is_set()

    def take(self) -> Piece | None:
        """Wait for it. None where it failed or was begun in another process: read on demand, which says why."""
        if self._pid != os.getpid():
            return None
        self._landed.wait()
        return self._piece

    def _run(self, reader: ByNumber, index: int, view: memoryview) -> None:
        begun = time.monotonic()
        try:
            reader.readinto(index, view, self.start)
            self.seconds = time.monotonic() - begun
            self._piece = Piece(self.start, self.stop, view)
        except (CacheEngineError, OSError, ValueError, RuntimeError):  # RuntimeError: the client was closed meanwhile
            pass  # nobody has asked for these bytes yet; whoever does gets the error of his own read
        finally:
            self._landed.set()
