"""How far to look ahead: the contract, and one plain sequential window.

`file_object.py` asks whenever it has to fetch; `prefetch/` supplies better answers (a known order, a plan) for the
same question. No I/O, no clock: the same questions in the same order get the same answers.
"""

from __future__ import annotations

from typing import Protocol

from cache_engine.block import BLOCK, SPAN

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


class SequentialWindow:
    """1 MiB, doubled with every fetch that begins where the last ended, up to 64 MiB; exact after a jump.

    A reader that starts at the front counts as sequential from the first byte. After a jump only what is asked for
    is fetched, so a random read costs what it reads; two more fetches side by side open the window again, small.
    Windows end at block borders, since whole blocks are what workers hold and sum, and are never smaller than the
    reads that they look ahead of.

    Mutable: `_end`, `_window`, `_run`; guarded by the caller (one thread at a time).
    """

    def __init__(self, first: int = BLOCK, largest: int = SPAN) -> None:
        self._first = first
        self._largest = largest
        self._end = 0
        self._window = 0
        self._run = SEQUENCE

    def __repr__(self) -> str:
        return f"<SequentialWindow {self._window >> 10} KiB, expects {self._end}, {self._run} in sequence>"

    def next(self, offset: int, length: int) -> int:
        if offset != self._end:
            self._window, self._run = 0, 0
        elif self._run < SEQUENCE:
            self._run += 1
        wanted = length
        if self._run >= SEQUENCE:
            self._window = min(self._largest, max(self._window * 2, self._first, length))
            stop = (offset + max(self._window, length)) // BLOCK * BLOCK
            wanted = max(length, stop - offset)
        self._end = offset + wanted
        return wanted
