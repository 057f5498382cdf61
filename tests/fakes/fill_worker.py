"""A worker that only answers fill requests, over real HTTP, by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cache_engine.access import Member
from cache_engine.manifest import Manifest
from cache_engine.ring import Ring
from prefetch.warm_plan import shares_of

Script = Callable[[int, dict[str, Any]], dict[str, Any]]
"""(how often this file was asked for before, the true row) -> the row to answer."""


class FillWorker:
    """Holds what the ring gives it the moment it is asked. Mutable: `asked`, `requests`, under `_lock`."""

    def __init__(self, name: str, manifest: Manifest, script: Script = lambda times, row: row) -> None:
        self.name = name
        self.manifest = manifest
        self.script = script
        self.ring: Ring | None = None
        self.owners = 1
        self.requests: list[tuple[str, list[int]]] = []
        self.asked: dict[int, int] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self._lock = threading.Lock()
        worker = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, document = worker.answer(self.path, body["files"])
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FillWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def member(self) -> Member:
        return Member(self.name, f"http://127.0.0.1:{self._server.server_port}", "elsewhere", "/nowhere")

    def answer(self, path: str, files: list[int]) -> tuple[int, Any]:
        self.inside.set()
        self.gate.wait(30)
        with self._lock:
            self.requests.append((path, files))
            return 200, {"files": [row for index in files if (row := self._row(index))]}

    def _row(self, index: int) -> dict[str, Any]:
        times = self.asked.get(index, 0)
        self.asked[index] = times + 1
        assert self.ring is not None
        held = shares_of(self.manifest.object_id(index), self.ring, self.owners).get(self.name, 0)
        return self.script(times, {"index": index, "bytes": held})
