"""How fast does a hot worker reach a reader's buffer, against two plain sockets that do the same work?

One object of 1 GiB in one worker's cell, in the page cache; 1 and 4 connections, each reading its share into prefaulted
memory. The plain peer: sendfile on one side, recv_into of 1 MiB and CRC32C of it on the other, the same processes
and spans. The rows without CRC: the worker's answer through our HTTP client, unsummed, against unsummed sockets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks import plain, report
from benchmarks.harness import Options, Question, Row, at_least
from benchmarks.scene import MIB, dataset, large_file, prefaulted, scratch
from cache_engine.block import SPAN
from cache_engine.client import Client
from cache_engine.http1 import Pool
from examples.stage import Embedded


def questions(options: Options) -> Iterator[Question | Row]:
    size = (128 if options.quick else 1024) * MIB
    view = prefaulted(size)
    with scratch("wire") as directory, ExitStack() as stack:
        file = large_file(directory / "source" / "large", size)
        embedded = stack.enter_context(Embedded(directory / "home", 1, "--cache-size", "2GiB", out=sys.stderr))
        server = stack.enter_context(plain.PlainProcess("serve", str(file)))
        embedded.apply(dataset("wire", file.parent.as_uri()))
        with embedded.open("wire", 8, local=False) as client:
            client.readinto("large", view)
            assert bytes(view[-MIB:]) == file.read_bytes()[-MIB:]
        for connections in (1, 4):
            ours = Ours(embedded, connections, view)
            stack.callback(ours.close)
            yield Question(
                f"hot worker to buffer, {connections} connections, CRC32C on both sides",
                "GB/s",
                {"forebay": _timed(ours.pull, size), "sockets": _plain(server, view, connections, True)},
                at_least(0.8, of="sockets"),
                notes={"bytes": size},
            )
            ours.check()
            yield Question(
                f"the same without CRC, {connections} connections",
                "GB/s",
                {"forebay": _timed(ours.pull_unsummed, size), "sockets": _plain(server, view, connections, False)},
                at_least(0.8, of="sockets"),
                notes={"bytes": size},
            )


def _plain(server: plain.PlainProcess, view: memoryview, connections: int, summed: bool) -> Callable[[], float]:
    return _timed(lambda: plain.pull(server.port, view, connections, summed), len(view))


def _timed(work: Callable[[], object], size: int) -> Callable[[], float]:
    def arm() -> float:
        began = time.perf_counter()
        work()
        return size / (time.perf_counter() - began) / 1e9

    return arm


class Ours:
    """The reader's side: as many clients as connections, each with its share of the buffer."""

    def __init__(self, embedded: Embedded, connections: int, view: memoryview) -> None:
        share = len(view) // connections
        self._shares = [(n * share, view[n * share : (n + 1) * share]) for n in range(connections)]
        self._clients = [embedded.open("wire", 1, local=False) for _ in range(connections)]
        self._threads = ThreadPoolExecutor(connections)
        self._pool = Pool(embedded.workers()[0]["url"])
        self._target = self._clients[0].reader.path(0)

    def _all(self, one: Callable[[Client, int, memoryview], object]) -> None:
        jobs = zip(self._clients, self._shares, strict=True)
        list(self._threads.map(lambda job: one(job[0], *job[1]), jobs))

    def pull(self) -> None:
        self._all(lambda client, start, view: client.readinto("large", view, start))

    def pull_unsummed(self) -> None:
        self._all(lambda _, start, view: self._unsummed(start, view))

    def _unsummed(self, start: int, view: memoryview) -> None:
        for offset in range(0, len(view), SPAN):
            part = view[offset : offset + SPAN]
            asked = f"bytes={start + offset}-{start + offset + len(part) - 1}"
            with self._pool.request("GET", self._target, [("range", asked)]) as response:
                for at in range(0, len(part), MIB):
                    response.readinto(part[at : at + MIB])

    def check(self) -> None:
        """Every byte came over HTTP from a cell."""
        for client in self._clients:
            stats = client.stats()
            assert stats.bytes["cell"] == stats.total() > 0, stats

    def close(self) -> None:
        self._threads.shutdown()
        for client in self._clients:
            client.close()


if __name__ == "__main__":
    sys.exit(report.run({"wire": questions}))
