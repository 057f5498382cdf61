"""One queue per object: a look at a time, level-triggered, with back-off.

A trigger says only "look again at NAME"; ten of them while a look is under way are one more look. What the look
finds, decides and does is the caller's coroutine, which returns when to look again by the clock. A look that fails
is repeated after 0.1, 0.2 ... 30 s and disturbs no other object; a bug in it is logged with its traceback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

BACKOFF_FIRST = 0.1
BACKOFF_MOST = 30.0
"""Seconds between looks that fail."""

_log = logging.getLogger(__name__)

Look = Callable[[str], Awaitable[float | None]]
"""Looks at one object; returns seconds until the next look that nothing else will cause, None for none."""


@dataclass(slots=True)
class _Queue:
    """Of one object. `due` is the loop's time of the next look, None for not before a trigger."""

    due: float | None = None
    running: bool = False
    failures: int = 0
    timer: asyncio.TimerHandle | None = None
    tasks: set[asyncio.Task[float | None]] = field(default_factory=set)


class Loop:
    """The queues of all objects. State belongs to the event loop's thread."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._queues: dict[str, _Queue] = {}
        self._closed = False

    def __repr__(self) -> str:
        running = sum(queue.running for queue in self._queues.values())
        return f"<Loop {len(self._queues)} objects, {running} looked at>"

    def trigger(self, name: str, after: float = 0.0) -> None:
        """Look at `name` in `after` seconds, or sooner where that was asked for already."""
        if self._closed:
            return
        queue = self._queues.setdefault(name, _Queue())
        due = asyncio.get_running_loop().time() + after
        if queue.due is None or due < queue.due:
            queue.due = due
            self._arm(name, queue)

    def drop(self, name: str) -> None:
        """Forget the queue of an object that is gone, once no look is under way."""
        queue = self._queues.get(name)
        if queue and not queue.running and queue.due is None:
            del self._queues[name]

    async def close(self) -> None:
        """Let the looks under way end and begin no other."""
        self._closed = True
        for queue in self._queues.values():
            if queue.timer:
                queue.timer.cancel()
        tasks = [task for queue in self._queues.values() for task in queue.tasks]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _arm(self, name: str, queue: _Queue) -> None:
        if queue.timer:
            queue.timer.cancel()
            queue.timer = None
        if queue.due is not None and not queue.running and not self._closed:
            queue.timer = asyncio.get_running_loop().call_at(queue.due, self._begin, name, queue)

    def _begin(self, name: str, queue: _Queue) -> None:
        queue.due, queue.timer, queue.running = None, None, True
        task = asyncio.ensure_future(self._look(name))
        queue.tasks.add(task)
        task.add_done_callback(lambda done: self._end(name, queue, done))

    def _end(self, name: str, queue: _Queue, task: asyncio.Future[float | None]) -> None:
        queue.running = False
        queue.tasks.clear()
        if task.cancelled():
            return
        if error := task.exception():
            queue.failures += 1
            again: float | None = min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(queue.failures - 1, 16))
            _log.error("looking at %s failed, again in %.1f s", name, again, exc_info=error)
        else:
            queue.failures = 0
            again = task.result()
        if again is not None:
            self.trigger(name, again)
        self._arm(name, queue)
        self.drop(name)
