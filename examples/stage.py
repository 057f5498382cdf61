"""The stage of the demo, of the benchmarks and of the end-to-end tests: an object store and an embedded Forebay.

Both are real processes, on loopback, on random ports, and end with their context.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from cache_engine.client import Client
from cache_engine.config import ReaderConfig
from cache_engine.control import Control

ROOT = Path(__file__).resolve().parent.parent


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


class Origin:
    """The object store as its own process."""

    def __init__(
        self, dialect: str, root: Path, first_byte: str, rate: str, keys: tuple[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "benchmarks.objectstore", "--dialect", dialect, "--root", str(root)]
        command += ["--first-byte", first_byte, "--rate", rate, "--until-eof"]
        secrets = {"OBJECTSTORE_CREDENTIALS": ":".join(keys)} if keys else {}
        self._process = subprocess.Popen(
            command, env=_environment(secrets), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["url"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, what: str, body: Mapping[str, Any] | None = None) -> Any:
        """The store's own control endpoint: stats, reset, rule, put."""
        payload = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/{what}", data=payload), timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def sent(self) -> int:
        """Bytes of object bodies sent so far."""
        return int(self.call("stats")["sent"])

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Embedded:
    """`forebay up` in the foreground of a child process, and its command line."""

    def __init__(self, home: Path, workers: int = 1, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.environment = _environment({"FOREBAY_HOME": str(home), **(env or {})})
        command = [*self._command(), "up", "--workers", str(workers), *options]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
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
        done = subprocess.run([*self._command(), *words], env=self.environment, input=stdin, text=True, check=check)
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
