"""The stage of the demo, of the benchmarks and of the end-to-end tests: an embedded Forebay in a process of its own.

On loopback, on random ports, and gone with its context. The store beside it is benchmarks/objectstore.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self, TextIO

from cache_engine.client import Client
from cache_engine.config import ReaderConfig
from cache_engine.control import Control

ROOT = Path(__file__).resolve().parent.parent


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


class Embedded:
    """`forebay up` in the foreground of a child process, and its command line."""

    def __init__(
        self,
        home: Path,
        workers: int = 1,
        *options: str,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        out: TextIO | None = None,
    ) -> None:
        """`log`: a file for what the controller says on stderr; `out`: where verbs print; default: our own."""
        self._out = out
        self.home = home
        self.environment = _environment({"FOREBAY_HOME": str(home), **(env or {})})
        command = [*self._command(), "up", "--workers", str(workers), *options]
        with log.open("w") if log else nullcontext() as stderr:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("Next:"):
                break
        else:
            raise RuntimeError(f"forebay up ended: {''.join(self.said)}")

    @staticmethod
    def _command() -> list[str]:
        return [sys.executable, "-m", "dataset_controller.cli"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "controller.json").read_text())["url"])

    def forebay(self, *words: str, check: bool = True, stdin: str | None = None) -> int:
        """A verb as a person types it; its output goes to ours. Raises CalledProcessError unless `check` is off."""
        done = subprocess.run(
            [*self._command(), *words], env=self.environment, input=stdin, text=True, check=check, stdout=self._out
        )
        return done.returncode

    def ask(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """A verb with its output captured; never raises for its exit code."""
        command = [*self._command(), *words]
        return subprocess.run(command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=120)

    def apply(self, document: str) -> None:
        """Apply YAML and wait until every Dataset in it is ready."""
        self.forebay("apply", "-f", "-", "--wait", stdin=document)

    def open(self, dataset: str, connections: int = 8, local: bool = True, **more: Any) -> Client:
        config = ReaderConfig(connections=connections, local=local, node=os.uname().nodename, **more)
        return Client(dataset, Control(self.url), config, self.environment)

    def workers(self) -> list[dict[str, Any]]:
        """What the controller knows of its workers."""
        return list(Control(self.url).call("GET", "/v1/workers")["items"])

    def worker_pids(self) -> list[int]:
        return [int(worker["pid"]) for worker in self.workers()]

    def close(self) -> None:
        """Ctrl-C, as a person would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
