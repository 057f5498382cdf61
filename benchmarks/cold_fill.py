"""What does a cold read through three workers lose against reading the origin directly, and against a bare relay?

The origin answers after 20 ms with 60 MB/s a connection. At 8 connections the sum is well below what this machine
relays: there ours is compared with the same 16 MiB ranges read by our ranged GET straight into the buffer. At 32
it is not: there the peer is a bare relay of three processes that do the same work and nothing else (origin ->
recv_into -> crc32c -> pwrite -> sendfile -> recv_into). Every run reads an object that nobody has read before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks import plain, report
from benchmarks.harness import Options, Question, Row, at_least, row
from benchmarks.objectstore import StoreProcess
from benchmarks.scene import ENVIRONMENT, KEYS, MIB, dataset, large_file, prefaulted, scratch
from cache_engine.block import RUN, ObjectId
from cache_engine.client import Client
from cache_engine.sources import open_source
from examples.stage import Embedded

FIRST_BYTE, RATE = 0.020, 60e6
CREDENTIALS = {"accessKeyId": KEYS[0], "secretAccessKey": KEYS[1]}


def questions(options: Options) -> Iterator[Question | Row]:
    size = (128 if options.quick else 1024) * MIB
    view = prefaulted(size)
    yield row("the cap of 16 MiB ranges: R / (R + rate x first byte)", "of the rate", RUN / (RUN + RATE * FIRST_BYTE))
    for dialect in ("http", "s3", "oss"):
        with ExitStack() as stack:
            yield from rows(Scene(stack, dialect, size, view, runs=4 * options.rounds + 4), dialect, size)


def rows(scene: Scene, dialect: str, size: int) -> Iterator[Question]:
    """Both numbers of connections, each against its peer."""
    notes = {"bytes": size, "ranges": RUN}
    yield Question(
        f"{dialect}: cold through 3 workers, 8 connections",
        "GB/s",
        {"forebay": scene.timed(lambda: scene.ours(8)), "direct": scene.timed(lambda: scene.direct(8))},
        at_least(0.95, of="direct"),
        mirrored=False,
        notes=notes,
    )
    yield Question(
        f"{dialect}: cold through 3 workers, 32 connections",
        "GB/s",
        {"forebay": scene.timed(lambda: scene.ours(32)), "relay": scene.timed(lambda: scene.relayed(32))},
        at_least(0.85, of="relay"),
        mirrored=False,
        notes=notes,
    )


class Scene:
    """One origin, three workers, three relays, and a queue of objects that nobody has read."""

    def __init__(self, stack: ExitStack, dialect: str, size: int, view: memoryview, runs: int) -> None:
        """Everything that is started ends with `stack`, also where the next thing does not start."""
        self._stack = stack
        self._view = view
        self._dialect = dialect
        self.directory = self._stack.enter_context(scratch(f"cold-{dialect}"))
        self._names = self._objects(size, runs)
        self._store = self._stack.enter_context(
            StoreProcess(dialect, root=self.directory / "root", first_byte=FIRST_BYTE, rate=RATE)
        )
        cache = f"{3 * size}"
        self._embedded = self._stack.enter_context(
            Embedded(self.directory / "home", 3, "--cache-size", cache, env=ENVIRONMENT, out=sys.stderr)
        )
        url, options = self._mount()
        self._embedded.apply(dataset("cold", url, options, keys=dialect != "http"))
        self._source = open_source(url, options, {} if dialect == "http" else CREDENTIALS)
        self._clients: dict[int, Client] = {}
        relays = [self.directory / f"relay{n}" for n in range(3)]
        for relay in relays:
            relay.mkdir()
        self._relays = [self._stack.enter_context(plain.PlainProcess("relay", str(relay))).port for relay in relays]

    def _objects(self, size: int, runs: int) -> Iterator[str]:
        """One file under many names, so that each is an object of its own."""
        first = large_file(self.directory / "root" / "bucket" / "cold" / "000", size)
        names = [f"{n:03d}" for n in range(runs)]
        for name in names[1:]:
            os.link(first, first.with_name(name))
        (self.directory / "root" / "bucket" / "names").write_text("".join(f"{name}\n" for name in names))
        return iter(names)

    def _mount(self) -> tuple[str, dict[str, str]]:
        if self._dialect == "http":
            return f"{self._store.url}/bucket/cold/", {"manifest": f"{self._store.url}/bucket/names"}
        return f"{self._dialect}://bucket/cold", {"endpoint": self._store.url, "region": "us-east-1"}

    def timed(self, work: Callable[[], object]) -> Callable[[], float]:
        def arm() -> float:
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            for leftover in self.directory.glob("relay?/*"):
                leftover.unlink()
            return len(self._view) / seconds / 1e9

        return arm

    def ours(self, connections: int) -> None:
        client = self._clients.get(connections)
        if client is None:
            client = self._embedded.open("cold", connections, local=False, source=False)
            self._clients[connections] = self._stack.enter_context(client)
        client.readinto(next(self._names), self._view)

    def direct(self, connections: int) -> None:
        client = next(iter(self._clients.values()), None) or self._embedded.open("cold", 1)
        obj = client.manifest.object_id(client.index(next(self._names)))

        def piece(start: int) -> None:
            self._piece(obj, start)

        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(piece, range(0, obj.size, RUN)))

    def _piece(self, obj: ObjectId, start: int) -> None:
        stop = min(obj.size, start + RUN)
        stream = self._source.read(obj, start, stop)
        for at in range(start, stop, MIB):
            stream.readinto(self._view[at : min(stop, at + MIB)])
        stream.close()

    def relayed(self, connections: int) -> None:
        name = next(self._names)
        port = self._store.url.rpartition(":")[2]
        head = f"GET /bucket/cold/{name} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nRange: @RANGE@\r\n\r\n"
        plain.pull_through(self._relays, self._view, connections, RUN, f"{port}\0{name}\0{head}".encode())


if __name__ == "__main__":
    sys.exit(report.run({"cold_fill": questions}))
