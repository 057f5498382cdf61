"""A worker as the decisions see it. Apart from `observed.py`, so that a cluster loads no resource models (0.2 s)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WorkerState = Literal["starting", "ready", "silent", "restarting", "stopped"]


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """One worker, with what it holds of this Dataset."""

    id: str
    state: WorkerState
    url: str = ""
    node: str = ""
    directory: str = ""
    capacity: int = 0
    """Bytes of its tier."""
    silent_for: float = 0.0
    """Seconds since its last heartbeat, or since the controller began to wait for the first."""
    cached: int = 0
    """Bytes of this Dataset that it owns, holds and has verified."""
    near: int = 0
    """Bytes of this Dataset that it holds without owning them."""
