"""What to do about one worker process: decided from what is seen of it, by time alone. No process is touched here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dataset_controller.worker_seen import WorkerState

SILENT_AFTER = 3.0
"""Seconds without a heartbeat (they come each second) until a worker is not ready."""
HUNG_AFTER = 20.0
"""Seconds without a heartbeat until a live process is taken for hung and killed: longer than any pause of a loaded
machine that was measured, shorter than the 30 s after which its data would move."""
BACKOFF_FIRST = 0.2
BACKOFF_MOST = 30.0
"""Seconds from a death to the next start: 0.2, 0.4 ... 30."""
SETTLED_AFTER = 60.0
"""Seconds of life that make the deaths before it forgotten."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker process at one moment; times in seconds of a monotonic clock."""

    now: float
    alive: bool
    started: float
    """When its process was last started."""
    ended: float
    """When its last process ended; only meaningful where it is not alive."""
    heard: float
    """When its present process last sent a heartbeat; 0 for never."""
    failures: int
    """How many of its processes in a row ended before they had settled."""
    stopping: bool = False


Step = Literal["start", "kill", "wait"]


def next_step(seen: Seen) -> Step:
    """Start a dead one after its back-off, kill a hung one, else wait."""
    if seen.stopping:
        return "wait"
    if not seen.alive:
        return "start" if seen.now >= seen.ended + backoff(seen.failures) else "wait"
    return "kill" if seen.now - max(seen.heard, seen.started) > HUNG_AFTER else "wait"


def state_of(seen: Seen) -> WorkerState:
    """The word for the status."""
    if seen.stopping:
        return "stopped"
    if seen.alive and seen.heard:
        return "ready" if seen.now - seen.heard <= SILENT_AFTER else "silent"
    return "restarting" if seen.failures or not seen.alive else "starting"


def backoff(failures: int) -> float:
    """Seconds to wait before the start after `failures` early deaths in a row."""
    return float(min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(max(failures - 1, 0), 16)))


def failures_after(seen: Seen) -> int:
    """The count when this process has just ended."""
    return 1 if seen.now - seen.started > SETTLED_AFTER else seen.failures + 1
