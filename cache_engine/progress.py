"""One line that says how far a long verb is: rewritten in place on a terminal, a plain line now and then elsewhere.

`describe` is pure; `ProgressLine` only decides when to write. Shared by the verbs of all floors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from cache_engine.sizes import format_duration, format_size

ON_TERMINAL = 0.1
"""Seconds between two looks of the line on a terminal."""
ELSEWHERE = 5.0
"""Seconds between two lines in a log."""
BAR = 24


def describe(done: int, total: int, seconds: float, bar: int = BAR) -> str:
    """'[####    ]  50 %  1.0 GiB of 2.0 GiB, 512 MiB/s, ETA 2.0s' after `seconds`; without a bar where `bar` is 0."""
    share = done / total if total else 1.0
    text = f"{int(share * 100):3d} %  {format_size(done)} of {format_size(total)}"
    if seconds > 0 and done:
        rate = done / seconds
        text += f", {format_size(rate)}/s"
        text += f", ETA {format_duration((total - done) / rate)}" if done < total else f", {format_duration(seconds)}"
    return f"[{'#' * int(share * bar):{bar}}] {text}" if bar else text.strip()


def columns(stream: TextIO) -> int:
    """How wide the terminal of `stream` is now; 80 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class ProgressLine:
    """Call it with (done, total) bytes, as often as you like, from one thread; `end` leaves the last state standing.

    Mutable: `_written` and `_last`, by that thread.
    """

    def __init__(self, stream: TextIO, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._label = label
        self._clock = clock
        self._terminal = stream.isatty()
        self._begun = self._written = clock()
        self._last: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        self._last = done, total
        now = self._clock()
        if now - self._written >= (ON_TERMINAL if self._terminal else ELSEWHERE):
            self._written = now
            self._write(done, total, "" if self._terminal else "\n")

    def end(self) -> None:
        """Write the last state and finish the line; nothing if there never was one."""
        if self._last is not None:
            self._write(*self._last, "\n")
            self._last = None

    def _write(self, done: int, total: int, end: str) -> None:
        text = f"{self._label}: {describe(done, total, self._clock() - self._begun, BAR if self._terminal else 0)}"
        if self._terminal:
            text = f"\r{text[: columns(self._stream) - 1]}\x1b[K"  # a line that wraps cannot be rewritten in place
        self._stream.write(text + end)
        self._stream.flush()
