"""One worker as a child process: started on a leash, heard by its heartbeats, started again when it ends.

`supervision.py` decides; this carries out. All state belongs to the control thread, which is the main thread: the
kernel ties a leashed child to the thread that forked it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataset_controller.clusters.local import leash, supervision
from dataset_controller.clusters.local.supervision import Seen
from dataset_controller.worker_seen import WorkerState

_log = logging.getLogger(__name__)

LOG_LIMIT = 8 << 20
"""Bytes of a worker's log; a longer one is put aside at the next start."""
TERM_GRACE = 5.0
"""Seconds from the polite signal to the other one; a worker then has written its clean mark."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where one worker lives, the same for all of its processes."""

    id: str
    node: str
    directory: Path
    quota: int
    """Bytes that its tier may take on the disk."""
    control: str
    """The URL of the control API."""
    log: Path


Command = Callable[[WorkerPlace], Sequence[str]]


@dataclass(slots=True)
class Report:
    """The last heartbeat of the present process."""

    url: str = ""
    used: int = 0
    capacity: int = 0
    cached: Mapping[str, int] = field(default_factory=dict)
    """Dataset uid -> bytes owned."""
    near: Mapping[str, int] = field(default_factory=dict)


class WorkerProcess:
    """A worker that is kept alive, over as many processes as that takes."""

    def __init__(self, place: WorkerPlace, command: Command, clock: Callable[[], float]) -> None:
        self.place = place
        self.report = Report()
        self.restarts = 0
        self._command = command
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._started = self._ended = clock()
        self._heard = 0.0
        self._silent_since = clock()
        self._failures = 0
        self._stopping = False
        self._watch: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.place.id} {self.state} pid={self.pid} restarts={self.restarts}>"

    @property
    def pid(self) -> int:
        """0 where it has no process now."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    @property
    def seen(self) -> Seen:
        alive = bool(self.pid)
        return Seen(
            self._clock(), alive, self._started, self._ended, self._heard, self._failures, stopping=self._stopping
        )

    @property
    def state(self) -> WorkerState:
        return supervision.state_of(self.seen)

    @property
    def silent_for(self) -> float:
        """Seconds since any of its processes was last heard; from the beginning where none ever was."""
        return self._clock() - self._silent_since

    async def start(self, on_end: Callable[[], None]) -> None:
        """A new process; `on_end` is called when it has ended. One that cannot be started counts as ended early."""
        self._started, self._heard = self._clock(), 0.0
        try:
            self._process = await self._spawn()
        except OSError as error:
            _log.warning("worker %s cannot be started: %s", self.place.id, error)
            self._note_end()
        else:
            self._watch = asyncio.create_task(self._follow(self._process, on_end), name=f"follow-{self.place.id}")

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.place.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *self._command(self.place)]
        with _open_log(self.place.log) as log:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C on the terminal goes to `forebay up`, which then stops its workers
            )

    def hear(self, pid: int, report: Report) -> bool:
        """A heartbeat; False where it is from a process that is not its own (any more)."""
        if pid != self.pid:
            return False
        self._heard = self._silent_since = self._clock()
        self.report = report
        return True

    def kill(self) -> None:
        """End a process that hangs; it is started again like any that ended."""
        if self._process and self.pid:
            self._process.kill()

    async def stop(self) -> None:
        """Politely, then not; returns when the process is gone."""
        self._stopping = True
        if self._process and self.pid:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), TERM_GRACE)
            except TimeoutError:
                self._process.kill()
        if self._watch:
            await self._watch

    async def _follow(self, process: asyncio.subprocess.Process, on_end: Callable[[], None]) -> None:
        """Read its output until it ends: the first line says its address, which saves waiting for a heartbeat."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if url := _url_in(line):
                self.report.url = url
        code = await process.wait()
        if not self._stopping:
            _log.warning("worker %s ended with %s; it is started again (log: %s)", self.place.id, code, self.place.log)
        self._note_end()
        on_end()

    def _note_end(self) -> None:
        self._failures = supervision.failures_after(self.seen)
        self._ended, self._heard = self._clock(), 0.0
        self.restarts += 1


def _url_in(line: bytes) -> str:
    try:
        document: Any = json.loads(line)
    except ValueError:
        return ""
    return str(document.get("url", "")) if isinstance(document, dict) else ""


def _open_log(path: Path) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > LOG_LIMIT:
        path.replace(path.with_suffix(".log.1"))
    return path.open("ab")
