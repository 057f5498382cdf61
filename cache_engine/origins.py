"""Where a worker's fetch goes: to the source if this worker owns the bytes, else to who does.

One read at the origin: owners fetch from the source, everyone else from owners. A second owner asks the
first; a request that already made a hop goes to the source, so that two workers with different
memberships never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cache_engine import wire
from cache_engine.access import Member
from cache_engine.block import ObjectId
from cache_engine.datasets import ServedDataset
from cache_engine.errors import CorruptBlock, NotFound, WorkerUnavailable
from cache_engine.metrics import WorkerMetrics
from cache_engine.peers import Peer
from cache_engine.source import Stream


@dataclass(frozen=True, slots=True)
class Target:
    """One object of one snapshot of one Dataset, as a request names it."""

    served: ServedDataset
    digest: str
    index: int
    obj: ObjectId

    @property
    def path(self) -> str:
        return wire.object_path(self.served.access.dataset, self.digest, self.index)

    @property
    def label(self) -> str:
        """Whose bytes they count as: the Dataset's, if they are of its current snapshot."""
        return self.served.access.uid if self.digest == self.served.digest else ""


class OwnerFirst:
    """The origin of one target for worker `me`: owners ranked before it, then the source."""

    def __init__(
        self, target: Target, me: str, hop: bool, peer: Callable[[Member], Peer], metrics: WorkerMetrics
    ) -> None:
        self._target = target
        self._me = me
        self._hop = hop
        self._peer = peer
        self._metrics = metrics

    @property
    def dataset(self) -> str:
        return self._target.served.access.dataset

    def is_owner(self, offset: int) -> bool:
        """Whether `me` is one of the owners of the bytes around `offset`."""
        access = self._target.served.access
        return self._me in self._target.served.ring.owners(self._target.obj, offset, access.owners)

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        """As Source.read; a worker that fails on the way is passed over."""
        for member in [] if self._hop else self._ahead(start):
            try:
                stream = self._peer(member).open(self._target.path, start, stop, (wire.HOP,))
            except (WorkerUnavailable, CorruptBlock, NotFound):
                continue
            return _Counted(stream, "peer", self._metrics)
        source = self._target.served.sources[self._mount]
        return _Counted(source.read(obj, start, stop), "source", self._metrics)

    @property
    def _mount(self) -> int:
        return self._target.served.manifest(self._target.digest).mount(self._target.index)

    def _ahead(self, offset: int) -> list[Member]:
        """Owners that come before this worker for the bytes around `offset`."""
        served = self._target.served
        owners = served.ring.owners(self._target.obj, offset, served.access.owners)
        before = owners[: owners.index(self._me)] if self._me in owners else owners
        return [member for name in before if (member := served.member(name)) is not None]


class _Counted:
    """A stream whose bytes are counted by where they came from."""

    def __init__(self, stream: Stream, origin: str, metrics: WorkerMetrics) -> None:
        self._stream = stream
        self._origin = origin
        self._metrics = metrics
        self.close = stream.close

    def readinto(self, buffer: memoryview) -> int:
        got = self._stream.readinto(buffer)
        self._metrics.fetched(self._origin, got)
        return got
