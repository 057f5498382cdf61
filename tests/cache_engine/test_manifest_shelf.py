"""Manifests on a node: downloaded once by all its processes, proved, and bounded in bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cache_engine.access import SnapshotRef
from cache_engine.control import Control
from cache_engine.errors import InvalidValue
from cache_engine.manifest_builder import ManifestBuilder
from cache_engine.manifest_shelf import ManifestShelf
from cache_engine.source import Page, Stat

FETCH = """
import sys
from pathlib import Path
from cache_engine.access import SnapshotRef
from cache_engine.control import Control
from cache_engine.manifest_shelf import ManifestShelf
directory, url, digest = sys.argv[1:]
ref = SnapshotRef(digest, 1, 1, f"/v1/manifests/{digest}")
print(ManifestShelf(Path(directory)).fetch(ref, Control(url)).files)
"""


class Controller:
    """Serves manifest files by digest, and counts."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[str] = []
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                digest = self.path.rpartition("/")[2]
                outer.asked.append(digest)
                body = (directory / digest).read_bytes()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Controller, list[SnapshotRef]]]:
    """A controller with three manifests, of 10, 20 and 30 files."""
    directory = tmp_path / "served"
    directory.mkdir()
    refs = []
    for count in (10, 20, 30):
        builder = ManifestBuilder([("memory://", "")])
        page = Page()
        for number in range(count):
            page.add(b"file-%03d" % number, Stat(number, f'etag:"{number:032x}"'))
        builder.add(0, page)
        manifest = builder.write(directory / "new")
        (directory / "new").rename(directory / manifest.digest)
        refs.append(SnapshotRef(manifest.digest, count, manifest.bytes, f"/v1/manifests/{manifest.digest}"))
    controller = Controller(directory)
    yield controller, refs
    controller.close()


def test_all_processes_of_a_node_download_a_manifest_once(
    served: tuple[Controller, list[SnapshotRef]], tmp_path: Path
) -> None:
    controller, refs = served
    command = [sys.executable, "-c", FETCH, str(tmp_path / "shelf"), controller.url, refs[1].digest]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [child.communicate(timeout=60)[0] for child in children] == ["20\n"] * 4
    assert controller.asked == [refs[1].digest]


def test_the_least_recently_used_leave_and_who_has_one_open_reads_on(
    served: tuple[Controller, list[SnapshotRef]], tmp_path: Path
) -> None:
    controller, refs = served
    shelf = ManifestShelf(tmp_path / "shelf", kept_bytes=1)
    first = shelf.fetch(refs[0], Control(controller.url))
    shelf.fetch(refs[1], Control(controller.url))
    assert [path.stem for path in (tmp_path / "shelf").glob("*.manifest")] == [refs[1].digest]
    assert first.path(9) == b"file-009"
    assert shelf.fetch(refs[0], Control(controller.url)).files == 10
    assert len(controller.asked) == 3


def test_a_manifest_that_is_not_what_its_digest_says_is_refused(
    served: tuple[Controller, list[SnapshotRef]], tmp_path: Path
) -> None:
    controller, refs = served
    target = tmp_path / "served" / refs[2].digest
    damaged = bytearray(target.read_bytes())
    at = damaged.index(b"file-015")
    damaged[at : at + 8] = b"file-xxx"
    target.write_bytes(bytes(damaged))
    with pytest.raises(InvalidValue, match="digest"):
        ManifestShelf(tmp_path / "shelf").fetch(refs[2], Control(controller.url))
    assert not list((tmp_path / "shelf").glob("*.manifest"))


def test_a_process_killed_in_its_download_keeps_nobody_waiting(
    served: tuple[Controller, list[SnapshotRef]], tmp_path: Path
) -> None:
    controller, (ref, *_) = served
    shelf = ManifestShelf(tmp_path / "shelf")
    (tmp_path / "shelf").mkdir()
    pid = os.fork()
    if not pid:
        with shelf._alone(ref.digest):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    fetched: list[int] = []
    thread = threading.Thread(
        target=lambda: fetched.append(shelf.fetch(ref, Control(controller.url)).files), daemon=True
    )
    thread.start()
    thread.join(10)
    assert fetched == [10]
