"""What may be set on the data plane: one frozen dataclass a component, every field with unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from cache_engine.block import RUN
from cache_engine.http1 import Timeouts


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """How one client reads."""

    connections: int = 8
    """Requests in flight of one reader at the most. 8 x 16 MiB hide 20 ms of first-byte time (0.93 of the rate)."""
    piece: int = RUN
    """Bytes of one request where a read is split over several connections; a whole number of blocks."""
    local: bool = True
    """Open cells of workers on this host directly, without HTTP."""
    node: str = ""
    """Name of this host; a member with the same name is local. Empty: nobody is."""
    source: bool = True
    """Read the source itself where every worker fails and the credentials resolve here."""
    shared: str = ""
    """Directory in which the processes of this host share copies of manifests; empty: a temporary one."""
    avoid: float = 2.0
    """Seconds for which a worker that failed is asked last."""
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(connect=1.0, first_byte=75.0, progress=20.0))
    """First byte: a worker that fills waits for its source, so it has to be longer than the source's own."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How one worker serves."""

    id: str
    """Stable name; the ring hashes it."""
    directory: str
    """Cache directory, owned by this worker alone."""
    quota: int
    """Bytes on disk at the most, fills in flight included."""
    control: str
    """URL of the controller."""
    node: str
    """Name of the host."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """0: any free one."""
    fetches: int = 32
    """Fetches from sources and peers at once: a thread and 1 MiB of buffer each."""
    boot_id: str = ""
    """This boot of the host; another one means that the last stop was not clean."""
    idle_files: int = 0
    """Files of cells kept open between requests: a small file costs half as much to serve when it is open already."""
