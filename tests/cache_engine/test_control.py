"""The client of the control API against a small server that answers by a table."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any

import pytest

from cache_engine.access import SnapshotRef
from cache_engine.control import Control
from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    ControllerUnavailable,
    InvalidValue,
    NotFound,
    SourceThrottled,
    SourceUnavailable,
)

DIGEST = "d" * 64


class Server(ThreadingTCPServer):
    """Answers (method, path) from `answers` with (status, body bytes), and keeps what was asked."""

    answers: dict[tuple[str, str], tuple[int, bytes]]
    asked: list[tuple[str, str, bytes]]
    allow_reuse_address = True
    cut: int = 0
    """Bytes to leave out at the end of each body."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.command, self.path, sent))
        status, body = self.server.answers.get((self.command, self.path), (404, b"nothing here"))
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - self.server.cut])

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Answering)
    server.answers, server.asked = {}, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def error(name: str, message: str, **more: Any) -> bytes:
    return json.dumps({"error": name, "message": message, **more}).encode()


def test_access(server: Server) -> None:
    body = {"dataset": "demo", "uid": "u", "epoch": 3, "snapshot": None, "later": "ignored"}
    server.answers["GET", "/v1/datasets/demo/access"] = (200, json.dumps(body).encode())
    access = Control(server.url).access("demo")
    assert (access.dataset, access.epoch, access.snapshot) == ("demo", 3, None)


def test_names_are_quoted_into_one_segment(server: Server) -> None:
    with pytest.raises(NotFound):
        Control(server.url).access("../a b")
    assert server.asked[0][1] == "/v1/datasets/..%2Fa%20b/access"


def test_heartbeat_and_refresh(server: Server) -> None:
    server.answers["POST", "/v1/workers/w0/heartbeat"] = (200, b'{"epochs": {"a": 1}, "interval": 1.0}')
    server.answers["POST", "/v1/datasets/a/refresh"] = (200, b'{"added": 2}')
    control = Control(server.url)
    assert control.heartbeat("w0", {"pid": 7})["epochs"] == {"a": 1}
    assert json.loads(server.asked[0][2]) == {"pid": 7}
    assert control.refresh("a") == {"added": 2}


@pytest.mark.parametrize(
    ("status", "body", "kind", "exit_code"),
    [
        (404, error("NotFound", "no"), NotFound, 3),
        (403, error("AccessDenied", "no"), AccessDenied, 4),
        (502, error("SourceUnavailable", "no"), SourceUnavailable, 6),
        (502, error("SourceThrottled", "no"), SourceThrottled, 6),
        (500, error("CacheEngineError", "no", exitCode=11), CacheEngineError, 11),
        (422, error("NoSuchClass", "no"), InvalidValue, 2),
        (422, error("os", "no"), InvalidValue, 2),
        (404, b"<html>", NotFound, 3),
        (503, b"", ControllerUnavailable, 9),
        (400, b"[]", InvalidValue, 2),
    ],
)
def test_the_error_that_the_controller_names(
    server: Server, status: int, body: bytes, kind: type[CacheEngineError], exit_code: int
) -> None:
    server.answers["GET", "/x"] = (status, body)
    with pytest.raises(CacheEngineError) as caught:
        Control(server.url).call("GET", "/x")
    assert (type(caught.value), caught.value.exit_code) == (kind, exit_code)


def test_an_answer_that_is_no_json(server: Server) -> None:
    server.answers["GET", "/x"] = (200, b"<html>")
    with pytest.raises(ControllerUnavailable, match="answers /x with something other than JSON"):
        Control(server.url).call("GET", "/x")


def test_nobody_there_says_where_the_address_came_from(server: Server) -> None:
    control = Control("http://127.0.0.1:1", origin="named by FOREBAY_API")
    with pytest.raises(ControllerUnavailable) as caught:
        control.access("demo")
    assert str(caught.value) == (
        "no controller answers at http://127.0.0.1:1 (named by FOREBAY_API); start one with `forebay up`"
    )
    assert caught.value.retryable


def test_a_body_that_ends_early(server: Server) -> None:
    server.answers["GET", "/x"] = (200, b'{"a": 1}')
    server.cut = 3
    with pytest.raises(ControllerUnavailable, match="broke the connection"):
        Control(server.url).call("GET", "/x")


def test_a_manifest_is_downloaded_whole(server: Server, tmp_path: Path) -> None:
    server.answers["GET", f"/v1/manifests/{DIGEST}"] = (200, b"m" * (3 << 20))
    ref = SnapshotRef(DIGEST, 1, 1, url=f"/v1/manifests/{DIGEST}")
    into = tmp_path / "new" / "manifest"
    assert Control(server.url).fetch_manifest(ref, into) == into
    assert into.read_bytes() == b"m" * (3 << 20)


def test_a_manifest_that_ends_early_leaves_no_file(server: Server, tmp_path: Path) -> None:
    server.answers["GET", f"/v1/manifests/{DIGEST}"] = (200, b"m" * 1000)
    server.cut = 1
    with pytest.raises(ControllerUnavailable):
        Control(server.url).fetch_manifest(SnapshotRef(DIGEST, 1, 1, url=""), tmp_path / "manifest")
    assert list(tmp_path.iterdir()) == []


def test_a_digest_is_never_taken_for_a_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is not a manifest's digest"):
        Control("http://127.0.0.1:1").fetch_manifest(SnapshotRef("../../etc/passwd", 1, 1, url=""), tmp_path / "m")


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"http://127\.0\.0\.1:7070"):
        Control(url)
