"""How many requests one source gets at a time: halved when it says "too many", one more after each good round.

Every thread that reads a source passes its gate; a budget of a whole Dataset (bytes a second, several processes)
would be decided at the same place.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from cache_engine.errors import SourceThrottled

_HALVE_EVERY = 1.0
"""Seconds between two halvings: one burst of refusals is one piece of news."""


class _Count:
    """The state of one process; everything under `changed`."""

    __slots__ = ("changed", "good", "halved_at", "inside", "limit", "pid", "waiting")

    def __init__(self, limit: int) -> None:
        self.pid = os.getpid()
        self.changed = threading.Condition()
        self.limit = limit
        self.inside = 0
        self.waiting = 0
        self.good = 0
        self.halved_at = float("-inf")


class Gate:
    """At most `limit` at a time, between 1 and `most`. A forked child starts with an empty one."""

    def __init__(self, most: int = 64, *, patience: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._patience = patience
        """Seconds to wait for a place: longer means that somebody keeps streams open and asks for more."""
        self._clock = clock
        self._count = _Count(most)

    def __repr__(self) -> str:
        count = self._count
        return f"<Gate {count.inside}/{count.limit} of {self.most}>"

    @property
    def limit(self) -> int:
        """How many are let in now."""
        return self._of_this_process().limit

    def enter(self) -> None:
        """Wait for a place. Raises SourceThrottled after `patience`."""
        count = self._of_this_process()
        with count.changed:
            if count.inside >= count.limit:
                self._wait(count)
            count.inside += 1

    def leave(self, *, good: bool) -> None:
        """Free the place. `good`: the source served; after as many of those as are let in, one more is."""
        count = self._of_this_process()
        with count.changed:
            count.inside = max(0, count.inside - 1)  # a child may give back what its parent took
            count.good += good
            if count.good >= count.limit:
                count.good = 0
                count.limit = min(self.most, count.limit + 1)
            if count.waiting:
                count.changed.notify_all()

    def throttled(self) -> None:
        """The source said "too many"."""
        count = self._of_this_process()
        with count.changed:
            count.good = 0
            now = self._clock()
            if now - count.halved_at >= _HALVE_EVERY:
                count.halved_at = now
                count.limit = max(1, count.limit // 2)

    def _wait(self, count: _Count) -> None:
        """Called, and returns, under `changed`."""
        count.waiting += 1
        try:
            if not count.changed.wait_for(lambda: count.inside < count.limit, self._patience):
                raise SourceThrottled(
                    f"no place at the source for {self._patience:g} s: it lets in {count.limit} at a time now"
                )
        finally:
            count.waiting -= 1

    def _of_this_process(self) -> _Count:
        if self._count.pid != os.getpid():
            self._count = _Count(self._count.limit)
        return self._count
