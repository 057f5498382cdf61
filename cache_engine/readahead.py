"""How far to look ahead: the contract, and one plain sequential window.

`file_object.py` asks whenever it has to fetch; `prefetch/` supplies better answers (a known order, a plan) for the
same question. No I/O, no clock of its own: the same questions in the same order get the same answers.
"""

from __future__ import annotations

from typing import Protocol

from cache_engine.block import BLOCK, RUN, SPAN

STEADY = RUN
"""The window grows to this size, one request of the reader, in any case. Beyond it is several requests at once, and
only where that pays: from a source with 20 ms and 60 MB/s a connection, 64 MiB read four times as fast as 16; from a
hot worker half as fast, since two such windows leave no processor's cache to anybody."""
GAIN = 1.2
"""What a window of twice the size has to gain in bytes per second to be kept."""
SEQUENCE = 2
"""Fetches side by side before a file read from its middle counts as read in sequence. One is not enough: a buffered
reader that is asked for 100 KiB at a random place makes two (what was asked, then a refill of its buffer)."""


class Readahead(Protocol):
    """One file's window. Used by one thread at a time."""

    def next(self, offset: int, length: int) -> int:
        """How many bytes from `offset` on are worth fetching, where the reader needs `length` of them now.

        At least `length`; the caller cuts at the end of the file. `length` may be 0: the reader has not asked
        for these bytes yet, only come near; then 0 means not to fetch ahead of it.
        """
        ...

    def landed(self, length: int, seconds: float) -> None:
        """A fetch ahead of `length` bytes took so long."""
        ...


class SequentialWindow:
    """1 MiB, doubled with every fetch that begins where the last ended, to 64 MiB while that pays; exact after a jump.

    A reader that starts at the front counts as sequential from the first byte. After a jump only what is asked for
    is fetched, so a random read costs what it reads; two more fetches side by side open the window again, small.
    Windows end at block borders, since whole blocks are what workers hold and sum, and are never smaller than the
    reads that they look ahead of.

    Mutable: `_end`, `_window`, `_run`, `_limit`, `_rate`, `_settled`; guarded by the caller (one thread at a time).
    """

    def __init__(self, first: int = BLOCK, largest: int = SPAN) -> None:
        self._first = first
        self._largest = largest
        self._end = 0
        self._run = SEQUENCE
        self._window = 0
        self._limit = min(STEADY, largest)
        self._rate = 0.0
        self._settled = False

    def __repr__(self) -> str:
        return f"<SequentialWindow {self._window >> 10} KiB, expects {self._end}, {self._run} in sequence>"

    def next(self, offset: int, length: int) -> int:
        if offset != self._end:
            self._restart()
        elif self._run < SEQUENCE:
            self._run += 1
        wanted = length
        if self._run >= SEQUENCE:
            self._window = min(self._largest, max(min(self._window * 2, self._limit), self._first, length))
            stop = (offset + max(self._window, length)) // BLOCK * BLOCK
            wanted = max(length, stop - offset)
        self._end = offset + wanted
        return wanted

    def landed(self, length: int, seconds: float) -> None:
        """At the limit: double it if this window was faster than one of half the size, else go back and stay."""
        if self._settled or length < self._limit:
            return
        rate = length / max(seconds, 1e-9)
        if rate < GAIN * self._rate:
            self._settled = True
            self._limit = max(STEADY, self._limit // 2)
        elif self._limit < self._largest:
            self._rate = rate
            self._limit *= 2

    def _restart(self) -> None:
        """After a jump: small again. What a larger window is worth is learnt anew, from this part of the file."""
        self._run, self._window = 0, 0
        self._limit, self._rate, self._settled = min(STEADY, self._largest), 0.0, False
