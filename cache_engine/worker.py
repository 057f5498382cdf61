"""One cache worker: its tier, its filler, the Datasets it serves and the other workers it asks.

`server.py` puts it on the wire, `worker_process.py` gives it a life (arguments, heartbeats, signals). Mutable:
`_peers`, guarded by `_lock`; `_completing`, the loop's alone; `changed`, a set with atomic add and pop only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cache_engine.access import Member
from cache_engine.block import BLOCK, blocks_of, spans_of
from cache_engine.config import WorkerConfig
from cache_engine.control import Control
from cache_engine.crossing import wait_for_all
from cache_engine.datasets import Datasets, ServedDataset, holds
from cache_engine.errors import CacheEngineError, CorruptBlock, ObjectChanged
from cache_engine.fill import Filler, NoRoom
from cache_engine.http1 import Timeouts
from cache_engine.lease import Lease
from cache_engine.metrics import WorkerMetrics
from cache_engine.origins import OwnerFirst, Target
from cache_engine.peers import Peer
from cache_engine.tier import DiskTier
from cache_engine.verify import proved

PEER_TIMEOUTS = Timeouts(connect=1.0, first_byte=75.0, progress=20.0)
"""Of another worker: longer than all tries of a source, which it may be waiting for."""


class Worker:
    """The mechanism of one worker, without its HTTP."""

    def __init__(self, config: WorkerConfig, environ: Mapping[str, str]) -> None:
        directory = Path(config.directory)
        self.id = config.id
        self.config = config
        self.metrics = WorkerMetrics()
        self.tier = DiskTier(directory, config.quota, boot_id=config.boot_id, idle_files=config.idle_files)
        self.filler = Filler(self.tier, config.fetches, self.metrics)
        self.datasets = Datasets(Control(config.control), directory / "manifests", environ)
        self.changed: set[str] = set()
        """Datasets of which an object turned out to have changed at its source, until the next heartbeat."""
        self._swept: dict[str, tuple[str, int]] = {}
        """Uid -> (digest, how often): the snapshot for which old versions were looked for. The heartbeat's alone."""
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._completing: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Worker {self.id} {self.tier!r} {self.datasets!r}>"

    def peer(self, member: Member) -> Peer:
        """The other worker, at the address it has now."""
        with self._lock:
            peer = self._peers.get(member.id)
            if peer is None or peer.member.url != member.url:
                peer = self._peers[member.id] = Peer(member, PEER_TIMEOUTS)
            return peer

    async def ensure(self, lease: Lease, blocks: range, origin: OwnerFirst, label: str) -> str:
        """The blocks are in the leased cell, fetched by whoever came first; returns where they were: cell or fill.

        Raises NoRoom where they have to go past the cache, or the source's error.
        """
        if lease.ready(blocks):
            return "cell"
        offset = blocks.start * BLOCK
        if not origin.keeps(offset):
            raise NoRoom("this Dataset has no near copies, and the block is owned elsewhere")
        near = not origin.is_owner(offset)
        futures = await asyncio.to_thread(self.filler.ensure, lease, blocks, origin, label, near)
        await self.arrived(futures, lease, blocks, origin)
        return "fill" if futures else "cell"

    async def arrived(self, futures: Sequence[Future[None]], lease: Lease, blocks: range, origin: OwnerFirst) -> None:
        """The blocks have landed. Raises NoRoom, or the source's error, which is noted."""
        await wait_for_all(futures)
        for future in futures:
            try:
                future.result(timeout=0)
            except CacheEngineError as exc:
                self.note(exc, origin.dataset)
                raise
        if not lease.ready(blocks):
            raise NoRoom("the cell was removed while its blocks came")

    def note(self, error: CacheEngineError, dataset: str) -> None:
        """Count a failed fetch; remember a Dataset whose source changed for the next heartbeat."""
        self.metrics.fetch_failed(error)
        if isinstance(error, ObjectChanged):
            self.changed.add(dataset)

    def complete_later(self, lease: Lease, target: Target, origin: OwnerFirst) -> None:
        """A near copy was read: fill the rest of its cell where that is wanted, fits, and is not under way."""
        name = target.obj.cell_name
        if lease.complete or not origin.completes or target.obj.size > self.tier.quota or name in self._completing:
            return
        self._completing[name] = asyncio.get_running_loop().create_task(self._complete(target, origin, name))

    async def _complete(self, target: Target, origin: OwnerFirst, name: str) -> None:
        """Span by span; gives up quietly at the first that fails, since nobody waits for it."""
        try:
            for _, start, stop in spans_of(0, target.obj.size):
                with self.tier.lease(target.obj, label=target.label, near=True) as lease:
                    await self.ensure(lease, blocks_of(start, stop), origin, target.label)
        except CacheEngineError:
            pass
        finally:
            del self._completing[name]

    async def hold(self, served: ServedDataset, digest: str, index: int) -> dict[str, Any]:
        """This worker's spans of one file are in its tier and proved; a row of the answer to a fill request."""
        held = 0
        try:
            target = Target(served, digest, index, served.manifest(digest).object_id(index))
            origin = OwnerFirst(target, self.id, False, self.peer, self.metrics)
            for _, start, stop in spans_of(0, target.obj.size):
                if origin.is_owner(start):
                    held += await self._hold_span(target, origin, start, stop)
        except NoRoom as exc:
            return {"index": index, "bytes": held, "error": f"no room in the cache: {exc}", "retryable": False}
        except CacheEngineError as exc:
            return {"index": index, "bytes": held, "error": str(exc), "retryable": exc.retryable}
        return {"index": index, "bytes": held}

    async def _hold_span(self, target: Target, origin: OwnerFirst, start: int, stop: int) -> int:
        blocks = blocks_of(start, stop)
        with self.tier.lease(target.obj, label=target.label) as lease:
            await self.ensure(lease, blocks, origin, target.label)
            return stop - start

    def prove_block(self, target: Target, block: int) -> bool:
        """Read the block and compare; True where it was bad and is dropped. Runs in a thread."""
        if not 0 <= block * BLOCK < max(1, target.obj.size):
            return False
        origin = OwnerFirst(target, self.id, True, self.peer, self.metrics)
        near = not origin.is_owner(block * BLOCK)
        with self.tier.lease(target.obj, label=target.label, near=near) as lease:
            if not lease.ready(range(block, block + 1)):
                return False
            try:
                proved(lease, block)
            except CorruptBlock:
                self.metrics.bad_block()
                return True
        return False

    def follow(self, epochs: Mapping[str, int], uids: Mapping[str, str] | None = None) -> None:
        """What a heartbeat's answer means for what is held: newer snapshots, and Datasets that are gone."""
        for gone in self.datasets.follow(epochs):
            self.tier.drop_label(gone.access.uid)
            self.tier.drop_unlabelled(_sources(gone).difference(*map(_sources, self.datasets.all())))
        for served in self.datasets.all():
            self._retire_superseded(served)
        if uids is not None:  # deleted, or made anew under the same name, while this worker was away
            for uid in set(self.tier.labels()) - set(uids.values()) - self.datasets.uids():
                self.tier.drop_label(uid)

    def _retire_superseded(self, served: ServedDataset) -> None:
        """Cells of versions that the snapshot no longer has leave first and count for nobody.

        Looked for twice after a change: a flight that was in the air the first time has landed by the second.
        """
        uid, digest = served.access.uid, served.digest
        known, looked = self._swept.get(uid, ("", 0))
        if not digest or (known == digest and looked > 1):
            return
        manifest = served.manifest(digest)
        for obj, _ in list(self.tier.objects(uid)):
            if not holds(manifest, obj):
                self.tier.retire(obj, uid)
        self._swept[uid] = (digest, looked + 1 if known == digest else 1)

    def sweep(self, uids: set[str]) -> None:
        """Drop the cells of Datasets that were deleted while this worker was away."""
        known = uids | self.datasets.uids()
        for label in self.tier.labels():
            if label not in known:
                self.tier.drop_label(label)

    def report(self, url: str, pid: int) -> dict[str, Any]:
        """The body of a heartbeat; what it says of changes is forgotten here and now."""
        changed = [self.changed.pop() for _ in range(len(self.changed))]
        return {
            "id": self.id,
            "url": url,
            "node": self.config.node,
            "directory": self.config.directory,
            "capacity": self.config.quota,
            "used": self.tier.used,
            "datasets": self.tier.labels(),
            "changed": changed,
            "pid": pid,
        }

    def stats(self) -> dict[str, Any]:
        """Figures for people and for tests, as /v1/stats answers them."""
        return {"id": self.id, "bytes": dict(self.metrics.totals), "evicted": self.evicted, **self.gauges()}

    @property
    def evicted(self) -> int:
        """Cells, and spans of large ones, that left to make room."""
        return self.tier.stats().counts["evicted"]

    def gauges(self) -> dict[str, float]:
        stats = self.tier.stats()
        return {
            "tier_used_bytes": stats.used,
            "tier_quota_bytes": stats.quota,
            "tier_cells": stats.cells,
            "tier_near_bytes": stats.near,
            "flights": len(self.filler.flights),
        }

    def close(self) -> None:
        """Fetches in flight end, then the tier is left clean."""
        self.filler.close()
        self.tier.close()


def _sources(served: ServedDataset) -> set[str]:
    """The names of all sources that its snapshots know, old ones included."""
    return {source for manifest in served.manifests.values() for source in manifest.sources}
