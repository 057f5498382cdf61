"""The control API: routes over `Controller` and `LocalCluster`, nothing decided here.

Importing FastAPI takes 0.6 s, so `serve.py` imports this module only after the workers are on their way. Routes run
on the control thread; what may wait for a disk or a source is handed to a thread by name. Every error leaves as
{"error": CLASS, "message": SENTENCE, "problems": [...]}, from which `cache_engine.control` makes the error again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    ControllerUnavailable,
    InvalidValue,
    NotFound,
    ObjectChanged,
    SourceUnavailable,
    UnsupportedSource,
)
from dataset_controller.admission import Checks, admit
from dataset_controller.clusters.local.cluster import LocalCluster
from dataset_controller.controller import Controller
from dataset_controller.explain import explain
from dataset_controller.resources import Dataset, Refused
from dataset_controller.store import Expired

HEARTBEAT = 1.0
"""Seconds between the heartbeats of a worker."""
WATCH_IDLE = 10.0
"""Seconds after which a watch with nothing to say sends a bookmark, which shows that it lives."""

_STATUS: tuple[tuple[type[CacheEngineError], int], ...] = (
    (NotFound, 404),
    (Expired, 410),
    (InvalidValue, 422),
    (UnsupportedSource, 422),
    (AccessDenied, 403),
    (ObjectChanged, 409),
    (SourceUnavailable, 502),
    (ControllerUnavailable, 503),
)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_DATASET_BODY = {
    "requestBody": {
        "required": True,
        "description": "A Dataset, or {kind: List, items: [Dataset...]}; all are stored or none.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Dataset"}}},
    }
}


def make_app(controller: Controller, cluster: LocalCluster, checks: Checks) -> FastAPI:
    """The whole application."""
    app = FastAPI(title="Forebay", version="v1", docs_url="/docs", redoc_url=None)
    _add_errors(app)
    _add_datasets(app, controller, checks)
    _add_snapshots(app, controller)
    _add_workers(app, controller, cluster)
    _add_probes(app, controller, cluster)
    return app


def _add_datasets(app: FastAPI, controller: Controller, checks: Checks) -> None:
    @app.get("/v1/datasets", summary="All Datasets, or with watch=true every change after resourceVersion")
    async def list_datasets(
        watch: bool = False, resource_version: Annotated[int, Query(alias="resourceVersion", ge=0)] = 0
    ) -> Response:
        if watch:
            controller.store.events(resource_version)  # 410 before the stream begins, not inside it
            return StreamingResponse(_watch(controller, resource_version), media_type="application/x-ndjson")
        items = [dataset.to_json() for dataset in controller.store.datasets()]
        return JSONResponse({"kind": "DatasetList", "resourceVersion": controller.store.version, "items": items})

    @app.post("/v1/datasets", summary="Create or change", openapi_extra=_DATASET_BODY)
    async def apply(body: Annotated[Any, Body()]) -> JSONResponse:
        datasets = await asyncio.to_thread(admit, body, checks)
        applied = controller.apply(datasets)
        items = [{"change": one.change, "dataset": one.dataset.to_json()} for one in applied]
        return JSONResponse({"items": items})

    @app.get("/v1/datasets/{name}", response_model=Dataset, summary="One Dataset")
    async def get_dataset(name: str) -> JSONResponse:
        return JSONResponse(controller.store.get(name).to_json())

    @app.delete("/v1/datasets/{name}", response_model=Dataset, summary="Delete; workers drop its cells")
    async def delete_dataset(name: str) -> JSONResponse:
        return JSONResponse(controller.delete(name).to_json())


def _add_snapshots(app: FastAPI, controller: Controller) -> None:
    @app.get("/v1/datasets/{name}/access", summary="What a reader needs: snapshot, members, mounts, epoch")
    async def access(name: str) -> JSONResponse:
        return JSONResponse(controller.access(name).to_json())

    @app.post("/v1/datasets/{name}/refresh", summary="Take a new snapshot and answer with the difference")
    async def refresh(name: str) -> JSONResponse:
        return JSONResponse(await controller.refresh(name))

    @app.get("/v1/datasets/{name}/explain", summary="Why it is not ready, or cold, in numbers")
    async def explain_dataset(name: str) -> JSONResponse:
        controller.store.get(name)
        return JSONResponse(explain(controller.observe(name)))

    @app.get("/v1/manifests/{digest}", summary="A manifest's file")
    async def manifest(digest: str) -> Response:
        if not _DIGEST.fullmatch(digest):
            raise InvalidValue(f"{digest!r} is not a manifest's digest; it must be 64 hex digits")
        path = controller.manifests / f"{digest}.manifest"
        if not await asyncio.to_thread(path.is_file):
            raise NotFound(f"no Dataset has the manifest {digest[:12]}... now; ask for its access again")
        return FileResponse(path, media_type="application/octet-stream")


def _add_workers(app: FastAPI, controller: Controller, cluster: LocalCluster) -> None:
    @app.get("/v1/workers", summary="All workers")
    async def workers() -> JSONResponse:
        return JSONResponse({"kind": "WorkerList", "items": cluster.rows()})

    @app.post("/v1/workers/{worker}/heartbeat", summary="A worker says what it holds and hears what is current")
    async def heartbeat(worker: str, body: Annotated[dict[str, Any], Body()]) -> JSONResponse:
        cluster.heartbeat(worker, body)
        for name in body.get("changed") or ():
            controller.object_changed(str(name))
        answer = {"epochs": controller.store.epochs(), "uids": controller.uids, "interval": HEARTBEAT}
        return JSONResponse(answer)


def _add_probes(app: FastAPI, controller: Controller, cluster: LocalCluster) -> None:
    @app.get("/healthz", summary="Whether the controller answers, and how many workers do")
    async def healthz() -> JSONResponse:
        rows = cluster.rows()
        ready = sum(row["state"] == "ready" for row in rows)
        workers = {"ready": ready, "total": len(rows)}
        return JSONResponse({"status": "ok", "pid": os.getpid(), "workers": workers})

    @app.get("/metrics", summary="Prometheus metrics")
    async def metrics() -> Response:
        from dataset_controller.metrics import exposition

        text = exposition(controller.store.datasets(), cluster.rows())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _watch(controller: Controller, since: int) -> AsyncIterator[bytes]:
    """One JSON object a line; ends when events were lost, so that the watcher lists anew."""
    while True:
        try:
            events = await controller.wait_event(since, WATCH_IDLE)
        except Expired:
            return
        for event in events:
            since = event.version
            yield json.dumps({"type": event.type, "object": event.object}).encode() + b"\n"
        if not events:
            yield json.dumps({"type": "BOOKMARK", "object": {"resourceVersion": since}}).encode() + b"\n"


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(CacheEngineError)
    async def domain(request: Request, error: CacheEngineError) -> JSONResponse:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        body: dict[str, Any] = {"error": _name(error), "message": str(error), "exitCode": error.exit_code}
        if isinstance(error, Refused):
            body["problems"] = [{"path": problem.path, "says": problem.says} for problem in error.problems]
        return JSONResponse(body, status)

    @app.exception_handler(sqlite3.DatabaseError)
    async def unwritten(request: Request, error: sqlite3.DatabaseError) -> JSONResponse:
        message = f"the state of the controller cannot be kept ({error}); look at the disk of its state directory"
        return JSONResponse({"error": "ControllerUnavailable", "message": message}, 503)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{request.method} {request.url.path}: {where} is not allowed ({first['msg']})"
        return JSONResponse({"error": "InvalidValue", "message": message}, 422)

    @app.exception_handler(HTTPException)
    async def routed(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}; /docs lists what there is"
        return JSONResponse(
            {"error": "NotFound" if error.status_code == 404 else "InvalidValue", "message": message}, error.status_code
        )


def _name(error: CacheEngineError) -> str:
    """The nearest class that `cache_engine.errors` knows, which is what the client can raise."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "cache_engine.errors")
