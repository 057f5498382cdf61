"""The answering end of the worker protocol: aiohttp routes over the tier, the filler and the Datasets.

The loop only serves; whatever may wait for a disk, a source or the controller runs in threads. The asking
end is `peers.py`, the words of both are in `wire.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from aiohttp import web

from cache_engine import wire
from cache_engine.block import BLOCK, blocks_of
from cache_engine.conditions import PastTheEnd, file_answer, reader_window
from cache_engine.errors import CacheEngineError, CorruptBlock, InvalidValue, NotFound, SourceThrottled
from cache_engine.fill import NoRoom, block_crcs, read_past
from cache_engine.lease import Lease
from cache_engine.names import unquote_wire
from cache_engine.origins import OwnerFirst, Target
from cache_engine.sending import send_cell, send_pieces
from cache_engine.serve_batch import BatchAnswer
from cache_engine.serve_file import FileAnswer
from cache_engine.serve_filling import FillingAnswer
from cache_engine.verify import proved_piece
from cache_engine.worker import Worker

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = logging.getLogger("forebay.worker")
FILL_FILES = 4096
"""Files that one fill request may name."""
HUNG_UP = 499
"""What the metrics say of a request whose reader went away."""
_INDEX = "{index:[0-9]{1,19}}"
_request_id: ContextVar[str] = ContextVar("request id", default="-")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,64}")


class WorkerServer:
    """The routes of one worker. Holds no state but the worker's and the gate for reads past the cache."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._past = asyncio.Semaphore(2)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._errors], client_max_size=1 << 20)
        app.on_response_prepare.append(_name_request)
        app.add_routes(
            [
                web.get(f"/v1/d/{{dataset}}/{{digest}}/{_INDEX}", self.get_object, allow_head=False),
                web.post("/v1/d/{dataset}/{digest}/batch", self.post_batch),
                web.post("/v1/d/{dataset}/{digest}/fill", self.post_fill),
                web.post(f"/v1/d/{{dataset}}/{{digest}}/{_INDEX}/bad", self.post_bad),
                web.get("/v1/datasets/{dataset}/files/{path:(?s:.*)}", self.get_file),
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
        _request_id.set(_id_of(request))
        try:
            response = await handler(request)
        except CacheEngineError as exc:
            response = _refusal(exc)
            if response.status not in (400, 404, 416):  # those are the asker's own affair
                log.info("%s [%s] %s %s: %s", self._worker.id, _request_id.get(), request.method, request.path, exc)
        except ConnectionError as exc:
            response = _hung_up(request, exc)
        except web.HTTPException as exc:
            self._worker.metrics.answered(kind, exc.status)
            raise
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

    def _origin(self, request: web.Request, target: Target) -> OwnerFirst:
        worker = self._worker
        hop = wire.HOP in request.headers
        return OwnerFirst(target, worker.id, hop, worker.peer, worker.metrics, _request_id.get())

    async def get_object(self, request: web.Request) -> web.StreamResponse:
        """One range of one object of one snapshot: what readers and workers ask."""
        target = await self._target(request)
        start, stop = reader_window(request.headers.get("Range"), target.obj.size)
        worker, origin = self._worker, self._origin(request, target)
        near = not origin.is_owner(start)
        headers = {
            wire.EPOCH: str(target.served.access.epoch),
            "Content-Range": f"bytes {start}-{stop - 1}/{target.obj.size}",
        }
        with worker.tier.lease(target.obj, label=target.label, near=near) as lease:
            blocks = blocks_of(start, stop)
            if wire.HELD in request.headers and not lease.ready(blocks):
                raise NotFound("not held here")
            whole = not start % BLOCK and (not stop % BLOCK or stop == target.obj.size)
            try:
                if wire.LATE_CRC in request.headers and whole and not lease.ready(blocks) and origin.keeps(start):
                    answer = FillingAnswer(worker, target, lease, blocks, origin)
                    await answer.begin()
                    return await answer.send(request, headers)
                headers[wire.ORIGIN] = where = await worker.ensure(lease, blocks, origin, target.label)
                if near:
                    worker.complete_later(lease, target, origin)
                if not whole:
                    response: web.StreamResponse = await self._piece(lease, start, stop, origin, headers)
                else:
                    response = await self._send_blocks(request, lease, start, stop, headers)
            except NoRoom:
                return await self._send_past(target, start, stop, origin, headers)
            worker.metrics.sent(where, stop - start)
            return response

    async def _piece(
        self, lease: Lease, start: int, stop: int, origin: OwnerFirst, headers: dict[str, str]
    ) -> web.Response:
        """A range inside one block, cut from the proved block; a damaged one is fetched again, once."""
        try:
            piece, crc = await asyncio.to_thread(proved_piece, lease, start, stop)
        except CorruptBlock:
            self._worker.metrics.bad_block()
            await self._worker.ensure(lease, blocks_of(start, stop), origin, origin.label)
            piece, crc = await asyncio.to_thread(proved_piece, lease, start, stop)
        return web.Response(status=206, body=piece, headers={**headers, wire.CRC: wire.format_crcs([crc])})

    async def _send_blocks(
        self, request: web.Request, lease: Lease, start: int, stop: int, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Whole blocks as they lie in the cell, with the CRCs that vouch for them: the reader compares."""
        crcs = wire.format_crcs(lease.crcs(blocks_of(start, stop)))
        response = web.StreamResponse(status=206, headers={**headers, wire.CRC: crcs})
        response.content_length = stop - start
        await response.prepare(request)
        await send_cell(request, lease, start, stop)
        await response.write_eof()
        return response

    async def _send_past(
        self, target: Target, start: int, stop: int, origin: OwnerFirst, headers: dict[str, str]
    ) -> web.StreamResponse:
        """No room in the tier: the bytes go through memory, two such reads at once."""
        self._worker.metrics.went_past()
        async with self._past:
            body, crcs = await asyncio.to_thread(_past_with_crcs, origin, target, start, stop)
        self._worker.metrics.sent("past", stop - start)
        headers |= {wire.CRC: wire.format_crcs(crcs), wire.ORIGIN: "past"}
        return web.Response(status=206, body=body, headers=headers)

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
        etag = f'"{target.obj.cell_name}"'
        status, (start, stop) = file_answer(request.headers, etag, target.obj.size)
        response = web.StreamResponse(status=status, headers={"ETag": etag, "Accept-Ranges": "bytes"})
        if status == 206:
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{target.obj.size}"
        if status < 300:
            response.content_length = stop - start
        if request.method == "HEAD" or start == stop:
            await response.prepare(request)
            await response.write_eof()
        else:
            await FileAnswer(self._worker, target, self._origin(request, target), self._past).send(
                request, response, start, stop
            )
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
        text = self._worker.metrics.text(self._worker.gauges(), self._worker.evicted)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _refusal(error: CacheEngineError) -> web.Response:
    if isinstance(error, PastTheEnd):
        return web.Response(status=416, text=f"{error}\n", headers={"Content-Range": f"bytes */{error.size}"})
    headers = {wire.ERROR: wire.name_of(error)}
    if isinstance(error, SourceThrottled) and error.retry_after:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return web.Response(status=wire.status_of(error), text=str(error) + "\n", headers=headers)


def _hung_up(request: web.Request, error: ConnectionError) -> web.Response:
    """The reader went away: nothing to say, nobody to say it to. A half body must not be followed by anything."""
    log.debug("[%s] %s %s: %s", _request_id.get(), request.method, request.path, error)
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=HUNG_UP)


async def _name_request(_: web.Request, response: web.StreamResponse) -> None:
    response.headers[wire.REQUEST_ID] = _request_id.get()


def _id_of(request: web.Request) -> str:
    """The id that the asker gave, where it can stand in a log and a header; else a new one."""
    given = request.headers.get(wire.REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex()


def _past_with_crcs(origin: OwnerFirst, target: Target, start: int, stop: int) -> tuple[bytearray, list[int]]:
    body = read_past(origin, target.obj, start, stop)
    return body, block_crcs(body)


def _fill_request(body: bytes) -> list[int]:
    try:
        doc: Any = json.loads(body)
        files = doc["files"]
        if (
            isinstance(files, list)
            and all(type(index) is int and index >= 0 for index in files)
            and len(files) <= FILL_FILES
        ):
            return files
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise InvalidValue(f'a fill request is {{"files": [number, ...]}}: {exc}') from exc
    raise InvalidValue(f'a fill request is {{"files": [number, ...]}} with at most {FILL_FILES} file numbers')
