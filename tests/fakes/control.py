"""The control API in small, over real HTTP: access documents with epochs, manifests, heartbeats."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cache_engine.access import Access, SnapshotRef
from cache_engine.manifest import Manifest


class FakeControl:
    """Publishes what a test gives it. Mutable: everything, under `_changed`."""

    def __init__(self, interval: float = 0.05) -> None:
        self.interval = interval
        self.reports: dict[str, list[dict[str, Any]]] = {}
        """Worker id -> its heartbeats, the oldest first."""
        self.refusals: list[tuple[int, str]] = []
        """(status, error name) for the next heartbeats, one each."""
        self.asked: list[str] = []
        self._documents: dict[str, Access] = {}
        self._manifests: dict[str, Path] = {}
        self._epoch = 0
        self._changed = threading.Condition()
        self._port = 0
        self._start()

    def __enter__(self) -> FakeControl:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Nobody answers at `url` any more, until `restart`."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def restart(self) -> None:
        """At the same address."""
        self._start()

    def publish(self, access: Access, manifest: Manifest | None = None, path: Path | None = None) -> Access:
        """The document under the next epoch; with a manifest, as its snapshot, which readers have to download."""
        with self._changed:
            self._epoch += 1
            snapshot = access.snapshot
            if manifest is not None and path is not None:
                self._manifests[manifest.digest] = path
                url = f"/v1/manifests/{manifest.digest}"
                snapshot = SnapshotRef(manifest.digest, manifest.files, manifest.bytes, url)
            access = replace(access, epoch=self._epoch, snapshot=snapshot)
            self._documents[access.dataset] = access
            return access

    def delete(self, name: str) -> None:
        with self._changed:
            del self._documents[name]

    def access(self, name: str) -> Access:
        return self._documents[name]

    def await_report(self, worker: str, after: int = 0) -> dict[str, Any]:
        """The newest heartbeat of a worker, once more than `after` of them came."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.reports.get(worker, ())) > after, timeout=30)
            assert came, f"worker {worker} does not beat"
            return self.reports[worker][-1]

    def beats(self, worker: str) -> int:
        return len(self.reports.get(worker, ()))

    def _start(self) -> None:
        control = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.say(*control._get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                self.say(*control._heartbeat(self.path, json.loads(body)))

            def say(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Answer)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def _get(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        parts = path.split("/")
        if path.endswith("/access") and parts[3] in self._documents:
            return 200, json.dumps(self._documents[parts[3]].to_json()).encode()
        if path.startswith("/v1/manifests/") and parts[3] in self._manifests:
            return 200, self._manifests[parts[3]].read_bytes()
        return _refusal(404, "NotFound", f"nothing at {path}")

    def _heartbeat(self, path: str, report: dict[str, Any]) -> tuple[int, bytes]:
        with self._changed:
            if self.refusals:
                return _refusal(*self.refusals.pop(0), "as the test wishes")
            self.reports.setdefault(path.split("/")[3], []).append(report)
            self._changed.notify_all()
            epochs = {name: access.epoch for name, access in self._documents.items()}
            uids = {name: access.uid for name, access in self._documents.items()}
            return 200, json.dumps({"epochs": epochs, "uids": uids, "interval": self.interval}).encode()


def _refusal(status: int, error: str, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": error, "message": message}).encode()
