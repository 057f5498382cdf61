"""The workers of one machine together: started, supervised, heard, and shown to the controller.

`process.py` is one worker. Whoever watches is told by `on_change` which Datasets look different now: a heartbeat
names those whose bytes changed; a worker that comes, goes or moves concerns all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache_engine.errors import InvalidValue, NotFound
from dataset_controller.clusters.local.process import Command, Report, WorkerPlace, WorkerProcess
from dataset_controller.clusters.local.supervision import next_step
from dataset_controller.worker_seen import WorkerSeen

TICK = 0.1
"""Seconds between looks at the processes: half the shortest back-off."""
STALL = 2.0
"""Seconds between two looks that mean that we were stopped (suspended, starved), not the workers."""

OnChange = Callable[[frozenset[str] | None], None]
"""Dataset uids that look different now; None for all."""


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """What `forebay up` was asked for."""

    directory: Path
    """The state directory; each worker's cells lie below it, so that they are found again by the same worker."""
    workers: int = 1
    """How many worker processes."""
    quota: int = 10 << 30
    """Bytes on disk that each of them may take."""
    nodes: tuple[str, ...] = ("localhost",)
    """Names of hosts, given to the workers in turn."""

    def place(self, number: int, control: str) -> WorkerPlace:
        name = f"w{number}"
        return WorkerPlace(
            id=name,
            node=self.nodes[number % len(self.nodes)],
            directory=self.directory / "workers" / name,
            quota=self.quota,
            control=control,
            log=self.directory / "logs" / f"{name}.log",
        )


class LocalCluster:
    """All workers. Every method is called on the control thread."""

    def __init__(self, config: LocalConfig, control: str, command: Command, on_change: OnChange) -> None:
        self._on_change = on_change
        self._processes = {
            place.id: WorkerProcess(place, command, time.monotonic)
            for place in (config.place(number, control) for number in range(config.workers))
        }
        self._states: dict[str, str] = {}
        self._ready = asyncio.Event()

    def __repr__(self) -> str:
        ready = sum(process.state == "ready" for process in self._processes.values())
        return f"<LocalCluster {ready} of {len(self._processes)} ready>"

    async def start(self) -> None:
        """All first processes; returns as soon as they are started, long before they are ready."""
        for process in self._processes.values():
            await process.start(self._look)

    async def supervise(self) -> None:
        """Keep them alive, until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            stalled, last = time.monotonic() - last > STALL, time.monotonic()
            if stalled:
                continue
            for process in self._processes.values():
                await self._supervise(process)
            self._look()

    async def stop(self) -> None:
        """Stop all of them, at the same time."""
        await asyncio.gather(*(process.stop() for process in self._processes.values()))

    async def wait_ready(self) -> None:
        """Until every worker has been ready at the same time."""
        await self._ready.wait()

    def heartbeat(self, worker: str, body: Mapping[str, Any]) -> None:
        """What a worker says of itself. Raises NotFound, InvalidValue."""
        if worker not in self._processes:
            raise NotFound(f"there is no worker {worker!r} here; this controller started {', '.join(self._processes)}")
        process = self._processes[worker]
        before, report = process.report, _report(body)
        if not process.hear(int(body.get("pid", 0)), report):
            raise NotFound(f"process {body.get('pid')} is not worker {worker}, which has process {process.pid} now")
        if before.url != report.url or before.capacity != report.capacity:
            self._on_change(None)
        changed = _changed(before.cached, report.cached) | _changed(before.near, report.near)
        if changed:
            self._on_change(frozenset(changed))
        self._look()

    def seen(self, uid: str) -> tuple[WorkerSeen, ...]:
        """All workers, with what they hold of Dataset `uid`."""
        return tuple(
            WorkerSeen(
                id=process.place.id,
                state=process.state,
                url=process.report.url,
                node=process.place.node,
                directory=str(process.place.directory),
                capacity=process.report.capacity or process.place.quota,
                silent_for=process.silent_for,
                cached=process.report.cached.get(uid, 0),
                near=process.report.near.get(uid, 0),
            )
            for process in self._processes.values()
        )

    def rows(self) -> list[dict[str, Any]]:
        """All workers as `forebay get workers` shows them."""
        return [
            {
                "id": process.place.id,
                "state": process.state,
                "node": process.place.node,
                "url": process.report.url,
                "directory": str(process.place.directory),
                "capacity": process.report.capacity or process.place.quota,
                "used": process.report.used,
                "pid": process.pid,
                "restarts": process.restarts,
                "log": str(process.place.log),
            }
            for process in self._processes.values()
        ]

    async def _supervise(self, process: WorkerProcess) -> None:
        step = next_step(process.seen)
        if step == "start":
            await process.start(self._look)
        elif step == "kill":
            process.kill()

    def _look(self) -> None:
        """Tell of every worker whose state is another one than at the last look."""
        states = {name: process.state for name, process in self._processes.items()}
        changed, self._states = states != self._states, dict(states)
        if all(state == "ready" for state in states.values()):
            self._ready.set()
        if changed:
            self._on_change(None)


def _report(body: Mapping[str, Any]) -> Report:
    try:
        held = {str(uid): (int(row["cached"]), int(row["near"])) for uid, row in body.get("datasets", {}).items()}
        return Report(
            url=str(body["url"]),
            used=int(body["used"]),
            capacity=int(body["capacity"]),
            cached={uid: cached for uid, (cached, _) in held.items()},
            near={uid: near for uid, (_, near) in held.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"a heartbeat must have url, used, capacity and datasets: {type(error).__name__} {error}"
        raise InvalidValue(message) from error


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
    return {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
