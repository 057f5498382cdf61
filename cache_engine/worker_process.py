"""A worker's life as a process: arguments, listening, heartbeats, signals. `python -m cache_engine.worker_process`.

Started by a cluster (as a child process, or as a container); it prints one JSON line with its URL once it
listens. SIGTERM and SIGINT end it cleanly within seconds: blocks under way land, the tier gets its clean mark.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from cache_engine.config import WorkerConfig
from cache_engine.control import Control
from cache_engine.directory import boot_id
from cache_engine.errors import CacheEngineError
from cache_engine.server import WorkerServer
from cache_engine.worker import Worker

log = logging.getLogger("forebay.worker")
THREADS = 32
"""Threads beside the loop, for what may wait: cold reads, proofs, reads past the cache, the controller. Python's
own default is 6 on two cores: six slow sources would stop every batch."""
MOST_FILES = 32_768
HEARTBEAT = 1.0
"""Seconds between heartbeats until the controller names another interval."""


def _arguments(argv: Sequence[str]) -> WorkerConfig:
    parser = argparse.ArgumentParser(prog="python -m cache_engine.worker_process", description=__doc__)
    parser.add_argument("--id", required=True, help="stable name of the worker")
    parser.add_argument("--control", required=True, help="URL of the controller")
    parser.add_argument("--directory", required=True, help="cache directory, owned by this worker alone")
    parser.add_argument("--quota", type=int, required=True, help="bytes on disk at the most")
    parser.add_argument("--node", required=True, help="name of the host")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes any free one")
    parser.add_argument("--fetches", type=int, default=32, help="fetches from sources and peers at once")
    found = parser.parse_args(argv)
    return WorkerConfig(**vars(found), boot_id=boot_id(), idle_files=_open_files() // 2)


def _open_files() -> int:
    """Descriptors that this process may have: the soft limit is raised to the hard one, up to 32,768."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


async def serve(worker: Worker, stop: asyncio.Event) -> None:
    """Listen, say where, beat until `stop` is set, then end what is in flight."""
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="serve")
    asyncio.get_running_loop().set_default_executor(threads)
    server = WorkerServer(worker)
    runner = web.AppRunner(server.application(), access_log=None, handle_signals=False, shutdown_timeout=5.0)
    await runner.setup()
    site = web.TCPSite(runner, worker.config.host, worker.config.port, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    url = f"http://{worker.config.host}:{port}"
    print(json.dumps({"url": url, "id": worker.id, "pid": os.getpid()}), flush=True)
    beating = asyncio.create_task(_beat(worker, url))
    await stop.wait()
    beating.cancel()
    worker.filler.stop()  # first, so that requests that wait for a fetch are answered and can end
    await runner.cleanup()
    await asyncio.to_thread(worker.close)


async def _beat(worker: Worker, url: str) -> None:
    """A heartbeat a second; a controller that is away changes nothing but what it knows of us."""
    control = Control(worker.config.control)
    interval = HEARTBEAT
    while True:
        try:
            interval = await asyncio.to_thread(_beat_once, worker, control, url)
            await asyncio.to_thread(worker.tier.tidy)
        except (CacheEngineError, KeyError, TypeError, ValueError, OSError) as exc:
            log.warning("heartbeat of worker %s not taken: %s", worker.id, exc)
        await asyncio.sleep(interval)


def _beat_once(worker: Worker, control: Control, url: str) -> float:
    report = worker.report(url, os.getpid())
    try:
        answer = control.heartbeat(worker.id, report)
    except CacheEngineError:
        worker.changed.update(report["changed"])
        raise
    worker.follow(answer["epochs"], answer.get("uids"))
    return float(answer.get("interval", HEARTBEAT))


async def _run(config: WorkerConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    worker = await asyncio.to_thread(Worker, config, dict(os.environ))
    gc.freeze()  # what is here now stays; and 10^5 cells are not looked through for every few hundred requests
    gc.set_threshold(50_000, 20, 50)
    await serve(worker, stop)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # the tier is closed; a thread that still waits for a source would keep the process for minutes


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(_run(_arguments(sys.argv[1:] if argv is None else argv)))
    except CacheEngineError as exc:
        print(f"worker: {exc}", file=sys.stderr)
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
