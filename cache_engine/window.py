"""A piece of a file in memory, and one that is on its way there.

`file_object.py` consumes them. One thread a window of 1 to 64 MiB costs nothing against the transfer (60 us
against 1 ms), needs no pool that a fork would break, and ends with its window.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from cache_engine.errors import CacheEngineError
from cache_engine.reading import ByNumber


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

    Mutable: `_piece`, written by that thread alone before `_landed` is set.
    """

    def __init__(self, reader: ByNumber, index: int, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self._pid = os.getpid()
        self._piece: Piece | None = None
        self._landed = threading.Event()
        threading.Thread(target=self._run, args=(reader, index), name="readahead", daemon=True).start()

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

    def _run(self, reader: ByNumber, index: int) -> None:
        try:
            view = memoryview(bytearray(self.stop - self.start))
            reader.readinto(index, view, self.start)
            self._piece = Piece(self.start, self.stop, view)
        except (CacheEngineError, OSError, ValueError, RuntimeError):  # RuntimeError: the client was closed meanwhile
            pass  # nobody has asked for these bytes yet; whoever does gets the error of his own read
        finally:
            self._landed.set()
