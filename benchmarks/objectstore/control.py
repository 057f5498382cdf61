"""The control endpoint of a store that runs as its own process: targets below /-/ on the same port.

    GET  /-/stats    the counters and rules, JSON         POST /-/reset   forget log and counts
    GET  /-/log      the requests, JSON                   POST /-/rescan  look at the root directory again
    POST /-/rule     {"kind": ..., "match": ..., ...}     POST /-/clear   drop all rules
    GET  /-/stat?key=BUCKET/KEY    its ETag and size
    PUT  /-/put?key=BUCKET/KEY[&etag=...]  body           DELETE /-/put?key=BUCKET/KEY

`RemoteStore` in `process.py` is the client. No secret guards it: the store listens on loopback alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.objectstore.answer import Answer, text_answer
from benchmarks.objectstore.objects import as_key

if TYPE_CHECKING:
    from benchmarks.objectstore.request import Request
    from benchmarks.objectstore.store import ObjectStore


def control(store: ObjectStore, request: Request) -> Answer:
    """Carry out what the request says; 400 with a reason where it cannot be understood."""
    verb = f"{request.method} {request.raw_path.removeprefix('/-/')}"
    try:
        return _json(200, _carry_out(store, verb, request))
    except (KeyError, ValueError, TypeError) as e:
        return _json(400, {"error": f"{verb}: {e}"})


def _carry_out(store: ObjectStore, verb: str, request: Request) -> Any:
    match verb:
        case "GET stats":
            return {"url": store.url, "dialect": store.name, **store.stats()}
        case "GET log":
            return [_line(line) for line in store.log]
        case "GET stat":
            return _stat(store, request.params["key"])
        case "POST reset":
            store.reset()
        case "POST rescan":
            store.shelf.rescan()
        case "POST clear":
            store.clear_rules()
        case "POST rule":
            return {"number": store.rule(**json.loads(request.body)).number}
        case "PUT put":
            params = request.params
            return {"etag": store.put(params["key"], request.body, params.get("etag")).etag}
        case "DELETE put":
            return {"deleted": store.delete(request.params["key"])}
        case _:
            raise ValueError("there is no such control")
    return {}


def _stat(store: ObjectStore, key: str) -> dict[str, Any]:
    stored = store.shelf.get(as_key(key))
    if stored is None:
        raise ValueError(f"there is no object {key!r}")
    return {"etag": stored.etag, "size": stored.size}


def _line(request: Request) -> dict[str, Any]:
    names = ("method", "target", "headers", "status", "sent", "at", "connection")
    return {name: getattr(request, name) for name in names}


def _json(status: int, document: Any) -> Answer:
    return text_answer(status, json.dumps(document), "application/json")
