"""`forebay up`: one process that starts the workers, then the API, and ends everything together.

The order is what makes it fast: the listening socket first (workers can be told its port), the workers second, and
only then, while they start on other cores, the second's worth of imports that the API needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache_engine.errors import InvalidValue
from dataset_controller.clusters.local.process import Command, WorkerPlace
from dataset_controller.clusters.local.state import StateDirectory

if TYPE_CHECKING:
    from dataset_controller.admission import Checks
    from dataset_controller.clusters.local.cluster import LocalCluster
    from dataset_controller.controller import Controller
    from dataset_controller.http_server import ApiServer
    from dataset_controller.snapshots import Take

READY_WITHIN = 10.0
"""Seconds that `up` waits for its workers before it says that they are late; it goes on either way."""
BACKLOG = 512
"""Connections that may wait while FastAPI is imported."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `forebay up` was asked for."""

    state: Path
    workers: int = 1
    quota: int = 10 << 30
    """Bytes on disk for each worker."""
    port: int = 0
    """0 lets the kernel choose."""
    nodes: tuple[str, ...] = ()
    """Names given to the workers in turn; empty for this host's name."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything that `up` starts or calls and does not decide: real in the product, stand-ins in tests."""

    command: Command
    """The command line of a worker."""
    take: Callable[[Mapping[str, str]], Take]
    """environ -> how a snapshot is taken."""
    checks: Callable[[Mapping[str, str]], Checks]
    """environ -> what `apply` checks."""
    program: tuple[str, ...] = (sys.executable, "-m", "dataset_controller.cli")
    """How `up --detach` starts itself again."""


def worker_command(place: WorkerPlace) -> list[str]:
    """The real worker of cache_engine."""
    head = [sys.executable, "-m", "cache_engine.worker_process", "--id", place.id, "--control", place.control]
    return [*head, "--directory", str(place.directory), "--quota", str(place.quota), "--node", place.node]


def real_outside() -> Outside:
    """The data plane, imported only where it is used."""

    def take(environ: Mapping[str, str]) -> Take:
        from dataset_controller.snapshots import real_take

        return real_take(environ)

    def checks(environ: Mapping[str, str]) -> Checks:
        from dataset_controller.admission import real_checks

        return real_checks(environ)

    return Outside(worker_command, take, checks)


def up(
    options: UpOptions, outside: Outside, environ: Mapping[str, str], on_ready: Callable[[dict[str, Any]], None]
) -> int:
    """Run until SIGINT or SIGTERM. `on_ready` gets the content of controller.json. Raises InvalidValue."""
    state = StateDirectory(options.state)
    try:
        with _listening(options.port) as listening:
            return asyncio.run(_Run(options, outside, environ, state).serve(listening, on_ready))
    finally:
        state.release()


class _Run:
    """One life of `forebay up`."""

    def __init__(self, options: UpOptions, outside: Outside, environ: Mapping[str, str], state: StateDirectory) -> None:
        self._options = options
        self._outside = outside
        self._environ = environ
        self._state = state
        self._controller: Controller | None = None

    async def serve(self, listening: socket.socket, on_ready: Callable[[dict[str, Any]], None]) -> int:
        stop = _stop_signals()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        cluster = self._make_cluster(url)
        await cluster.start()
        supervision = asyncio.create_task(cluster.supervise(), name="supervise")
        server, serving = self._start_api(cluster, listening)
        document = self._document(url)
        ready = asyncio.create_task(self._when_ready(server, cluster, document, on_ready), name="ready")
        stopped = asyncio.create_task(stop.wait(), name="stopped")
        try:
            await asyncio.wait({stopped, serving, supervision}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (supervision, ready, stopped):
                task.cancel()
            server.should_exit = True
            await asyncio.gather(cluster.stop(), serving)
            if self._controller:
                await self._controller.close()
        for task in (supervision, ready):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return 0

    def _make_cluster(self, url: str) -> LocalCluster:
        from dataset_controller.clusters.local.cluster import LocalCluster, LocalConfig

        options = self._options
        nodes = options.nodes or (socket.gethostname(),)
        config = LocalConfig(options.state, options.workers, options.quota, nodes)
        return LocalCluster(config, url, self._outside.command, self._workers_changed)

    def _workers_changed(self, uids: frozenset[str] | None) -> None:
        if self._controller:
            self._controller.workers_changed(uids)

    def _start_api(self, cluster: LocalCluster, listening: socket.socket) -> tuple[ApiServer, asyncio.Task[None]]:
        from dataset_controller.api import make_app
        from dataset_controller.controller import Controller
        from dataset_controller.http_server import ApiServer

        take, checks = self._outside.take(self._environ), self._outside.checks(self._environ)
        self._controller = Controller(self._options.state, cluster, take)
        self._controller.start()
        server = ApiServer(make_app(self._controller, cluster, checks))
        return server, asyncio.create_task(server.serve(sockets=[listening]), name="api")

    async def _when_ready(
        self,
        server: ApiServer,
        cluster: LocalCluster,
        document: dict[str, Any],
        on_ready: Callable[[dict[str, Any]], None],
    ) -> None:
        await server.answers.wait()
        self._state.announce(document)
        try:
            await asyncio.wait_for(cluster.wait_ready(), READY_WITHIN)
        except TimeoutError:
            logs = self._options.state / "logs"
            _log.warning("%r after %.0f s; their logs are in %s", cluster, READY_WITHIN, logs)
        on_ready(document)

    def _document(self, url: str) -> dict[str, Any]:
        options = self._options
        size = {"workers": options.workers, "cacheSize": options.quota}
        return {"url": url, "pid": os.getpid(), "state": str(options.state), **size}


def _stop_signals() -> asyncio.Event:
    """Set by Ctrl-C, `forebay down` (SIGTERM) and a terminal that goes away."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise InvalidValue(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
    listening.listen(BACKLOG)
    with listening:
        yield listening
