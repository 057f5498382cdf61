"""The answering end of the worker protocol: aiohttp routes over the tier, the filler and the Datasets.

The loop only serves; whatever may wait for a disk, a source or the controller runs in threads. The asking
end is `peers.py`, the words of both are in `wire.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from cache_engine import wire
from cache_engine.block import BLOCK, blocks_of
from cache_engine.errors import CacheEngineError, InvalidValue, NotFound, SourceThrottled
from cache_engine.fill import NoRoom, block_crcs, read_past
from cache_engine.lease import Lease
from cache_engine.names import unquote_wire
from cache_engine.origins import OwnerFirst, Target
from cache_engine.sending import send_pieces, send_range
from cache_engine.serve_batch import BatchAnswer
from cache_engine.verify import prove, proved_piece
from cache_engine.worker import Worker

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
FILL_FILES = 4096
"""Files that one fill request may name."""


class WorkerServer:
    """The routes of one worker. Holds no state but the worker's and the gate for reads past the cache."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._past = asyncio.Semaphore(2)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._errors], client_max_size=1 << 20)
        app.add_routes(
            [
                web.get("/v1/d/{dataset}/{digest}/{index:\\d+}", self.get_object),
                web.post("/v1/d/{dataset}/{digest}/batch", self.post_batch),
                web.post("/v1/d/{dataset}/{digest}/fill", self.post_fill),
                web.post("/v1/d/{dataset}/{digest}/{index:\\d+}/bad", self.post_bad),
                web.get("/v1/datasets/{dataset}/files/{path:.*}", self.get_file),
                web.get("/v1/stats", self.get_stats),
                web.get("/healthz", self.get_health),
                web.get("/metrics", self.get_metrics),
            ]
        )
        return app

    @web.middleware
    async def _errors(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Our errors as HTTP, once, at the border."""
        kind = request.match_info.handler.__name__
        try:
            response = await handler(request)
        except CacheEngineError as exc:
            response = _refusal(exc)
        self._worker.metrics.answered(kind, response.status)
        return response

    async def _target(self, request: web.Request) -> Target:
        dataset, digest = request.match_info["dataset"], request.match_info["digest"]
        served = self._worker.datasets.known(dataset, digest)
        if served is None:
            served = await asyncio.to_thread(self._worker.datasets.load, dataset, digest)
        manifest = served.manifest(digest)
        index = int(request.match_info["index"])
        if index >= manifest.files:
            raise NotFound(f"snapshot {digest[:12]} has {manifest.files} files; there is no number {index}")
        return Target(served, digest, index, manifest.object_id(index))

    async def get_object(self, request: web.Request) -> web.StreamResponse:
        """One range of one object of one snapshot: what readers and workers ask."""
        target = await self._target(request)
        window = _range(request, target.obj.size)
        if window is None:
            raise InvalidValue("a reader's request needs a Range of at least one byte")
        return await self._send(request, target, window, {wire.ORIGIN: "cell"})

    async def get_file(self, request: web.Request) -> web.StreamResponse:
        """One file by its path, for people and curl: whole or a range, with its version as ETag."""
        dataset = request.match_info["dataset"]
        served = self._worker.datasets.known(dataset)
        if served is None:
            served = await asyncio.to_thread(self._worker.datasets.load, dataset)
        raw = request.raw_path.partition("?")[0].partition("/files/")[2]
        manifest = served.manifest(served.digest)
        index = manifest.find(unquote_wire(raw))
        target = Target(served, served.digest, index, manifest.object_id(index))
        size = target.obj.size
        headers = {"ETag": f'"{target.obj.cell_name}"', "Accept-Ranges": "bytes"}
        window = _range(request, size)
        if request.method == "HEAD" or not size:
            return web.Response(headers={**headers, "Content-Length": str(size)})
        return await self._send(request, target, window or (0, size), headers, 206 if window else 200)

    async def _send(
        self, request: web.Request, target: Target, window: tuple[int, int], headers: dict[str, str], status: int = 206
    ) -> web.StreamResponse:
        start, stop = window
        origin = OwnerFirst(
            target, self._worker.id, wire.HOP in request.headers, self._worker.peer, self._worker.metrics
        )
        near = not origin.is_owner(start)
        headers[wire.EPOCH] = str(target.served.access.epoch)
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{target.obj.size}"
        with self._worker.tier.lease(target.obj, label=target.label, near=near) as lease:
            blocks = blocks_of(start, stop)
            try:
                where = "cell" if lease.ready(blocks) else await self._fill(request, lease, blocks, origin, target)
            except NoRoom:
                return await self._send_past(request, target, window, origin, headers)
            if near and target.served.access.near_copies == "complete":
                self._worker.complete_later(target, origin)
            self._worker.metrics.sent(where, stop - start)
            if wire.ORIGIN in headers:
                headers[wire.ORIGIN] = where
            return await self._send_lease(request, lease, window, headers, status)

    async def _fill(self, request: web.Request, lease: Lease, blocks: range, origin: OwnerFirst, target: Target) -> str:
        """Blocks into the cell, whoever fetches them; returns where they were: always 'fill'."""
        if wire.HELD in request.headers:
            raise NotFound("not held here")
        await self._worker.ensure(lease, blocks, origin, target.label)
        return "fill"

    async def _send_lease(
        self, request: web.Request, lease: Lease, window: tuple[int, int], headers: dict[str, str], status: int
    ) -> web.StreamResponse:
        start, stop = window
        blocks = blocks_of(start, stop)
        whole = start % BLOCK == 0 and (stop % BLOCK == 0 or stop == lease.obj.size)
        if whole and wire.ORIGIN in headers:
            headers[wire.CRC] = wire.format_crcs(lease.crcs(blocks))
        elif len(blocks) == 1:
            piece, crc = await asyncio.to_thread(proved_piece, lease, start, stop)
            headers[wire.CRC] = wire.format_crcs([crc])
            return web.Response(status=status, body=piece, headers=headers)
        else:
            await asyncio.to_thread(prove, lease, blocks)
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = stop - start
        await response.prepare(request)
        await send_range(response, request, lease, start, stop)
        return response

    async def _send_past(
        self, request: web.Request, target: Target, window: tuple[int, int], origin: OwnerFirst, headers: dict[str, str]
    ) -> web.StreamResponse:
        """No room in the tier: the bytes go through memory, two such reads at once."""
        start, stop = window
        self._worker.metrics.went_past()
        async with self._past:
            body = await asyncio.to_thread(read_past, origin, target.obj, start, stop)
            if wire.ORIGIN in headers:
                headers |= {wire.CRC: wire.format_crcs(block_crcs(body)), wire.ORIGIN: "past"}
            self._worker.metrics.sent("past", stop - start)
            response = web.Response(status=206 if "Content-Range" in headers else 200, body=body, headers=headers)
            await response.prepare(request)
            await response.write_eof()
            return response

    async def post_batch(self, request: web.Request) -> web.StreamResponse:
        """Many small files in one answer: a table of sizes and CRCs, then the bodies."""
        dataset, digest = request.match_info["dataset"], request.match_info["digest"]
        indices = wire.unpack_indices(await request.read())
        served = self._worker.datasets.known(dataset, digest)
        if served is None:
            served = await asyncio.to_thread(self._worker.datasets.load, dataset, digest)
        with BatchAnswer(self._worker, served, digest, indices, wire.HOP in request.headers) as answer:
            table, pieces, length = await answer.prepare()
            response = web.StreamResponse(headers={wire.EPOCH: str(served.access.epoch)})
            response.content_length = length
            await response.prepare(request)
            await send_pieces(request, table, pieces)
            await response.write_eof()
            return response

    async def post_fill(self, request: web.Request) -> web.StreamResponse:
        """Hold these files (this worker's spans of them), verified; says of each how many bytes are held."""
        names = _fill_request(await request.read())
        dataset, digest = request.match_info["dataset"], request.match_info["digest"]
        served = self._worker.datasets.known(dataset, digest)
        if served is None:
            served = await asyncio.to_thread(self._worker.datasets.load, dataset, digest)
        rows = await asyncio.gather(*(self._worker.hold(served, digest, index) for index in names))
        return web.json_response({"files": rows})

    async def post_bad(self, request: web.Request) -> web.StreamResponse:
        """A reader got a block with a wrong CRC: prove it here, drop it if it is bad."""
        target = await self._target(request)
        try:
            block = int(request.query.get("block", ""))
        except ValueError:
            raise InvalidValue("say which block: ?block=N") from None
        dropped = await asyncio.to_thread(self._worker.prove_block, target, block)
        return web.json_response({"dropped": dropped})

    async def get_stats(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self._worker.stats())

    async def get_health(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"id": self._worker.id, "ok": True})

    async def get_metrics(self, _: web.Request) -> web.StreamResponse:
        text = self._worker.metrics.text(self._worker.gauges())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _refusal(error: CacheEngineError) -> web.Response:
    headers = {wire.ERROR: type(error).__name__}
    if isinstance(error, SourceThrottled) and error.retry_after:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return web.Response(status=wire.status_of(error), text=str(error) + "\n", headers=headers)


def _range(request: web.Request, size: int) -> tuple[int, int] | None:
    """[start, stop) of the Range header, cut to the object; None without one. Raises 416."""
    try:
        asked = request.http_range
    except ValueError:
        raise InvalidValue("the Range header is not of the form bytes=FIRST-LAST") from None
    if asked.start is None and asked.stop is None:
        return None
    start, stop, _ = asked.indices(size)
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return start, stop


def _fill_request(body: bytes) -> list[int]:
    try:
        doc: Any = json.loads(body)
        files = doc["files"]
        if all(type(index) is int and index >= 0 for index in files) and len(files) <= FILL_FILES:
            return list(files)
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidValue(f'a fill request is {{"files": [number, ...]}}: {exc}') from exc
    raise InvalidValue(f'a fill request is {{"files": [number, ...]}} with at most {FILL_FILES} file numbers')
