"""The one place that tries again: a wrapper around every source, so that no source and no caller has to.

A try that failed for a passing reason is repeated after a random wait of growing length (full jitter, so that
many readers do not come back together); Retry-After is obeyed; the sum of tries and of waits is bounded. A body
that broke goes on from the break, and demands the same version there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cache_engine.block import ObjectId
from cache_engine.errors import SourceThrottled, SourceUnavailable
from cache_engine.source import Page, Source, Stat, Stream
from cache_engine.sources.gate import Gate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often and how long."""

    tries: int = 8
    """Requests for one thing, the first included: with the waits below, about 25 s of patience."""
    base: float = 0.1
    """Seconds: the first wait is random between 0 and this, the next between 0 and twice as much."""
    cap: float = 10.0
    """Seconds: no random wait is longer."""
    total: float = 40.0
    """Seconds from the first try to the beginning of the last, Retry-After included. With 20 s of silence in that last
    one a worker answers within 60 s: before its reader, who waits 75 s, takes it for lost and asks the next."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Clock, sleep and randomness, which tests script."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random


class PagedSource(Source, Protocol):
    """A source whose listing can go on from a page; `page(None)` is the first, the cursor None after the last."""

    def page(self, cursor: Any) -> tuple[Page, Any]: ...


def wait_before(rule: RetryRule, tries: int, elapsed: float, error: SourceUnavailable, chance: float) -> float | None:
    """Seconds to wait after `tries` failed tries, None to give up. Pure; `chance` is random in [0, 1)."""
    if tries >= rule.tries:
        return None
    wait = chance * min(rule.cap, rule.base * 2.0 ** (tries - 1))
    if isinstance(error, SourceThrottled) and error.retry_after is not None:
        wait += error.retry_after
    return wait if elapsed + wait <= rule.total else None


class _Patience:
    """The tries of one thing. Not shared between threads."""

    __slots__ = ("_edge", "_rule", "_since", "tries")

    def __init__(self, rule: RetryRule, edge: Edge) -> None:
        self._rule, self._edge = rule, edge
        self._since = edge.clock()
        self.tries = 0

    def bear(self, error: SourceUnavailable) -> None:
        """Wait for the next try, or raise `error`."""
        self.tries += 1
        elapsed = self._edge.clock() - self._since
        wait = wait_before(self._rule, self.tries, elapsed, error, self._edge.random())
        if wait is None:
            raise error
        self._edge.sleep(wait)


class RetryingSource:
    """A source that bears passing faults. `name` is the wrapped one's."""

    def __init__(
        self, source: Source, rule: RetryRule = RetryRule(), *, gate: Gate | None = None, edge: Edge = Edge()
    ) -> None:
        self.name = source.name
        self.gate = gate or Gate()
        self._source = source
        self._rule = rule
        self._edge = edge

    def __repr__(self) -> str:
        return f"<RetryingSource {self._source!r} {self.gate!r}>"

    def list(self) -> Iterator[Page]:
        """A source that gives single pages is asked again for the page that failed; another one is not asked again."""
        page: Callable[[Any], tuple[Page, Any]] | None = getattr(self._source, "page", None)
        if page is None:
            yield from self._source.list()
            return
        cursor: Any = None
        while True:
            found, cursor = self._patiently(lambda at=cursor: page(at))  # type: ignore[misc]
            yield found
            if cursor is None:
                return

    def stat(self, key: bytes) -> Stat:
        return self._patiently(lambda: self._source.stat(key))

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        stream = _RetryingStream(self, obj, start, stop, self.patience())
        stream.open()
        return stream

    def close(self) -> None:
        self._source.close()

    def patience(self) -> _Patience:
        return _Patience(self._rule, self._edge)

    def open_once(self, obj: ObjectId, start: int, stop: int) -> Stream:
        """One try; the place at the gate is kept until `left`."""
        self.gate.enter()
        try:
            return self._source.read(obj, start, stop)
        except BaseException as error:
            self.left(error)
            raise

    def left(self, error: BaseException | None = None) -> None:
        """A try has ended: the gate learns how."""
        if isinstance(error, SourceThrottled):
            self.gate.throttled()
        self.gate.leave(good=error is None)

    def _patiently(self, ask: Callable[[], T]) -> T:
        patience = self.patience()
        while True:
            self.gate.enter()
            try:
                found = ask()
            except SourceUnavailable as error:
                self.left(error)
                patience.bear(error)
            except BaseException as error:
                self.left(error)
                raise
            else:
                self.left()
                return found


class _RetryingStream:
    """A range that goes on after a break. `_inner` is None between a failure and the next try."""

    __slots__ = ("_at", "_inner", "_obj", "_patience", "_source", "_stop")

    def __init__(self, source: RetryingSource, obj: ObjectId, start: int, stop: int, patience: _Patience) -> None:
        self._source, self._obj, self._patience = source, obj, patience
        self._at, self._stop = start, stop
        self._inner: Stream | None = None

    def __repr__(self) -> str:
        return f"<_RetryingStream at={self._at} stop={self._stop} tries={self._patience.tries}>"

    def open(self) -> None:
        while self._inner is None:
            try:
                self._inner = self._source.open_once(self._obj, self._at, self._stop)
            except SourceUnavailable as error:
                self._patience.bear(error)

    def readinto(self, buffer: memoryview) -> int:
        view = buffer[: self._stop - self._at]
        done = 0
        while done < len(view):
            self.open()
            assert self._inner is not None
            try:
                count = self._inner.readinto(view[done:] if done else view)
                if not count:
                    raise SourceUnavailable(f"{self._source.name}: the body ended {self._stop - self._at} bytes early")
            except SourceUnavailable as error:
                count = getattr(error, "received", 0)
                self._leave(error)
                self._count(count)
                done += count
                self._patience.bear(error)
                continue
            self._count(count)
            done += count
        return done

    def close(self) -> None:
        self._leave(None)

    def _count(self, count: int) -> None:
        self._at += count

    def _leave(self, error: SourceUnavailable | None) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()
            self._source.left(error)
