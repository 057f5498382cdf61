"""A worker's answer while the blocks are still coming: each goes out as soon as it has landed, their CRCs at the end.

Waiting for a whole request first (16 MiB: 300 ms at 60 MB/s) left every connection idle while its bytes were handed
on, a tenth of its time. A header with the CRCs would have to know them before the first byte; so they follow the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future

from aiohttp import web

from cache_engine import wire
from cache_engine.block import BLOCK
from cache_engine.errors import CacheEngineError
from cache_engine.lease import Lease
from cache_engine.origins import OwnerFirst, Target
from cache_engine.sending import send_cell
from cache_engine.worker import Worker


class FillingAnswer:
    """Whole blocks of one leased cell, some of them in flight."""

    def __init__(self, worker: Worker, target: Target, lease: Lease, blocks: range, origin: OwnerFirst) -> None:
        self._worker = worker
        self._target = target
        self._lease = lease
        self._blocks = blocks
        self._origin = origin

    async def begin(self) -> None:
        """Start every fetch and wait for the first block: what fails until then is an ordinary refusal."""
        await asyncio.to_thread(self._start, self._blocks)
        await self._land(self._blocks.start)
        if not self._origin.is_owner(self._blocks.start * BLOCK):
            self._worker.complete_later(self._lease, self._target, self._origin)

    def _start(self, blocks: range) -> list[Future[None]]:
        near = not self._origin.is_owner(self._blocks.start * BLOCK)
        return self._worker.filler.ensure(self._lease, blocks, self._origin, self._origin.label, near)

    async def _land(self, number: int) -> None:
        """One block is there. Touches memory alone: `begin` has read what had to be proved."""
        block = range(number, number + 1)
        if not self._lease.ready(block):
            await self._worker.arrived(self._start(block), self._lease, block, self._origin)

    async def send(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """The body, a run of landed blocks at a time. A failure now can only cut the connection."""
        size, blocks = self._lease.obj.size, self._blocks
        response = web.StreamResponse(status=206, headers={**headers, wire.ORIGIN: "fill", wire.LATE_CRC: "1"})
        length = min(size, blocks.stop * BLOCK) - blocks.start * BLOCK
        response.content_length = length + 4 * len(blocks)
        self._worker.metrics.sent("fill", length)
        await response.prepare(request)
        at = blocks.start
        while at < blocks.stop:
            try:
                await self._land(at)
            except CacheEngineError as exc:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError(f"block {at} did not come: {exc}") from exc
            until = self._landed_until(at)
            await send_cell(request, self._lease, at * BLOCK, min(size, until * BLOCK))
            at = until
        await response.write(wire.pack_crcs(self._lease.crcs(blocks)))
        await response.write_eof()
        return response

    def _landed_until(self, block: int) -> int:
        """The first block from `block` on that has not landed."""
        while block < self._blocks.stop and self._lease.ready(range(block, block + 1)):
            block += 1
        return block
