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
from cache_engine.errors import ControllerUnavailable, CorruptBlock, NotFound, WorkerUnavailable
from cache_engine.metrics import WorkerMetrics
from cache_engine.peers import Peer
from cache_engine.source import Stream

Place = Callable[[ObjectId, int, int], Stream]
"""Reads [start, stop) of an object, as Source.read does."""
PASSED_OVER = (WorkerUnavailable, CorruptBlock, NotFound, ControllerUnavailable)
"""What another worker may say that says nothing about the object: the next place is asked."""


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
    """The origin of one target for worker `me`: owners ranked before it, then the source; with `hop`, it alone."""

    def __init__(
        self,
        target: Target,
        me: str,
        hop: bool,
        peer: Callable[[Member], Peer],
        metrics: WorkerMetrics,
        request_id: str = "",
    ) -> None:
        self._target = target
        self._me = me
        self._hop = hop
        self._peer = peer
        self._metrics = metrics
        self._request_id = request_id

    @property
    def dataset(self) -> str:
        return self._target.served.access.dataset

    @property
    def label(self) -> str:
        return self._target.label

    def is_owner(self, offset: int) -> bool:
        """Whether `me` is one of the owners of the bytes around `offset`."""
        access = self._target.served.access
        return self._me in self._target.served.ring.owners(self._target.obj, offset, access.owners)

    def keeps(self, offset: int) -> bool:
        """Whether what comes may be kept: as an owner, as who stands in for one, or as a near copy where those are."""
        return self._hop or self._target.served.access.near_copies != "never" or self.is_owner(offset)

    @property
    def completes(self) -> bool:
        """Whether a near copy that was read in part is to be filled."""
        return self._target.served.access.near_copies == "complete"

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        """As Source.read; a worker that fails on the way, also in the middle of a body, is passed over."""
        places = [self._asking(member) for member in ([] if self._hop else self._ahead(start))]
        return _PassingOver([*places, self._from_source], obj, start, stop)

    def _asking(self, member: Member) -> Place:
        def read(_: ObjectId, start: int, stop: int) -> Stream:
            peer = self._peer(member)
            stream = peer.open(self._target.path, start, stop, (wire.HOP,), self._request_id)
            return _Counted(stream, "peer", self._metrics)

        return read

    def _from_source(self, obj: ObjectId, start: int, stop: int) -> Stream:
        source = self._target.served.source(self._target.digest, self._target.index)
        return _Counted(source.read(obj, start, stop), "source", self._metrics)

    def _ahead(self, offset: int) -> list[Member]:
        """Owners that come before this worker for the bytes around `offset`."""
        served = self._target.served
        owners = served.ring.owners(self._target.obj, offset, served.access.owners)
        before = owners[: owners.index(self._me)] if self._me in owners else owners
        return [member for name in before if (member := served.member(name)) is not None]


class _PassingOver:
    """A range from the first of `places` that has it; from the next, where it stood, when one fails on the way."""

    def __init__(self, places: list[Place], obj: ObjectId, start: int, stop: int) -> None:
        self._places = places
        self._obj = obj
        self._at = start
        self._stop = stop
        self._stream: Stream | None = self._opened()

    def _opened(self) -> Stream:
        while len(self._places) > 1:
            try:
                return self._places[0](self._obj, self._at, self._stop)
            except PASSED_OVER:
                self._places.pop(0)
        return self._places[0](self._obj, self._at, self._stop)

    def readinto(self, buffer: memoryview) -> int:
        if self._stream is None:
            self._stream = self._opened()
        try:
            got = self._stream.readinto(buffer)
        except PASSED_OVER:
            if len(self._places) == 1:
                raise
            self.close()
            self._places.pop(0)
            return self.readinto(buffer)
        self._at += got
        return got

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


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
