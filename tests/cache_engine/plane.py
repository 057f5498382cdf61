"""A whole data plane in one process: an object store, a little control API, workers in threads, clients.

Everything is the real thing over real sockets and real cache directories, but for the control API
(`tests/fakes/control.py`). Workers are `worker_process.serve` on an event loop of their own.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from benchmarks.objectstore import ObjectStore
from cache_engine.access import Access, Member, MountAccess
from cache_engine.block import BLOCK
from cache_engine.client import Client
from cache_engine.config import ReaderConfig, WorkerConfig
from cache_engine.control import Control
from cache_engine.http1 import Pool, Timeouts
from cache_engine.manifest import Manifest
from cache_engine.snapshot import take
from cache_engine.sources import open_source
from cache_engine.worker import Worker
from cache_engine.worker_process import serve
from tests.fakes.control import FakeControl

QUICK = Timeouts(connect=1.0, first_byte=20.0, progress=10.0)


class LiveWorker:
    """One worker, its server and its heartbeats, in a thread of this process."""

    def __init__(self, config: WorkerConfig, control: FakeControl, environ: Mapping[str, str]) -> None:
        self.config = config
        self.worker = Worker(config, environ)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"worker {config.id}", daemon=True)
        beats = control.beats(config.id)
        self._thread.start()
        self.url = str(control.await_report(config.id, beats)["url"])

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(serve(self.worker, self._stop))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @property
    def member(self) -> Member:
        return Member(self.config.id, self.url, self.config.node, self.config.directory)

    def stats(self) -> dict[str, Any]:
        return self.worker.stats()

    def cells(self) -> list[Path]:
        """The files of its cells, vouchers left out."""
        root = Path(self.config.directory) / "cells"
        return sorted(path for path in root.glob("*/*") if not path.suffix)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()


class Plane:
    """One Dataset called `d` over a store; a context manager. `nodes`: one worker a name."""

    def __init__(
        self,
        root: Path,
        files: Mapping[str, bytes],
        nodes: tuple[str, ...] = ("n0",),
        *,
        quota: int = 256 << 20,
        fetches: int = 8,
        first_byte: float = 0.0,
        environ: Mapping[str, str] | None = None,
        mount: Mapping[str, Any] | None = None,
        **access: Any,
    ) -> None:
        self.root = root
        self.quota = quota
        self.fetches = fetches
        self.environ = dict(environ or {})
        self._closing = ExitStack()
        self.store = self._closing.enter_context(ObjectStore("http", first_byte=first_byte))
        self.control = self._closing.enter_context(FakeControl())
        self.put(files)
        self.mount = MountAccess(url=f"{self.store.url}/data/", **(mount or {}))
        self.workers = [self.start(f"w{n}", node) for n, node in enumerate(nodes)]
        given = {"uid": "uid-d", **access}
        self.publish(Access("d", epoch=0, snapshot=None, mounts=(self.mount,), **given), snapshot=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()
        self._closing.close()

    def put(self, files: Mapping[str, bytes]) -> None:
        for name, body in files.items():
            self.store.put(f"data/{name}", body)

    def start(self, name: str, node: str = "n0") -> LiveWorker:
        """A worker in the directory of its name."""
        directory = self.root / name
        config = WorkerConfig(
            name, str(directory), self.quota, self.control.url, node, fetches=self.fetches, boot_id="boot"
        )
        return LiveWorker(config, self.control, self.environ)

    def restart(self, number: int) -> LiveWorker:
        """The worker stops and comes back with its directory, at another port; the membership is not told."""
        old = self.workers[number]
        old.stop()
        self.workers[number] = self.start(old.config.id, old.config.node)
        return self.workers[number]

    def publish(self, access: Access | None = None, *, snapshot: bool = False, **changes: Any) -> Access:
        """The document with the workers where they are now; `snapshot`: a new one of the source."""
        access = replace(access or self.control.access("d"), **changes)
        access = replace(access, members=tuple(worker.member for worker in self.workers))
        if not snapshot:
            return self.control.publish(access)
        path = self.root / f"snapshot-{random.randrange(1 << 60):x}"
        manifest = take([(self.mount, open_source(self.mount.url, {}, {}))], path)
        return self.control.publish(access, manifest, path)

    def manifest(self) -> Manifest:
        ref = self.control.access("d").snapshot
        assert ref is not None
        return next(m for p in self.root.glob("snapshot-*") if (m := Manifest.open(p)).digest == ref.digest)

    def client(self, dataset: str = "d", **options: Any) -> Client:
        """Nothing local and no source unless asked for."""
        options = {"local": False, "source": False, "timeouts": QUICK, "avoid": 0.2, **options}
        return Client(dataset, Control(self.control.url), ReaderConfig(**options), self.environ)

    def http(self, number: int = 0) -> Pool:
        return Pool(self.workers[number].url, timeouts=QUICK)

    def target(self, name: str = "", tail: str = "") -> str:
        """The request target of a file of the current snapshot, or of the snapshot itself."""
        manifest = self.manifest()
        index = f"/{manifest.find(name.encode())}" if name else ""
        return f"/v1/d/d/{manifest.digest}{index}{tail}"

    def blocks_read(self, name: str) -> list[int]:
        """The numbers of the blocks of a file that the store was asked for, in order."""
        asked = [r for r in self.store.log if r.method == "GET" and str(r.target).endswith(f"/data/{name}")]
        return sorted(block for r in asked for block in _blocks(str(r.headers.get("range", ""))))

    def beat(self, number: int = 0, times: int = 3) -> None:
        """Wait until a worker beat that many times from now."""
        name = self.workers[number].config.id
        self.control.await_report(name, self.control.beats(name) + times - 1)


def _blocks(asked: str) -> range:
    first, last = asked.removeprefix("bytes=").split("-")
    return range(int(first) // BLOCK, int(last) // BLOCK + 1)


def noise(size: int, seed: int) -> bytes:
    """Bytes that no other offset has."""
    return random.Random(seed).randbytes(size)


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))
