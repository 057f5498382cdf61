"""The command as a process of its own, over the stand-ins of fake_forebay."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.dataset_controller.build import document

PROGRAM = (sys.executable, "-m", "tests.dataset_controller.fake_forebay")
PATIENCE = 30.0
"""Seconds that a test waits for what must come; the machine may be busy."""


class Forebay:
    """One state directory and the processes on it."""

    def __init__(self, home: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.home = home
        self.source = home.parent / f"{home.name}-source"
        self.source.mkdir()
        (self.source / "a").write_bytes(b"12345")
        clean = {name: value for name, value in environ.items() if not name.startswith("FOREBAY_")}
        self.environ = {**clean, "FOREBAY_HOME": str(home), "PYTHONPATH": os.getcwd()}
        self._foreground: list[subprocess.Popen[str]] = []

    def run(self, *words: str, text: str = "", code: int = 0) -> str:
        """stdout of a verb that ends by itself with exit code `code`; with another than 0 its stderr."""
        done = subprocess.run(
            [*PROGRAM, *words], env=self.environ, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def up(self, *words: str) -> "subprocess.Popen[str]":
        """In the foreground; returns when it says that it is ready."""
        command = [*PROGRAM, "up", *words]
        process = subprocess.Popen(command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._foreground.append(process)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert re.match(r"Forebay answers at http://127\.0\.0\.1:\d+ ", first), (first, process.poll())
        return process

    def apply(self, name: str = "demo", *words: str, url: str = "", **spec: Any) -> str:
        body = document(name, url or f"file://{self.source}", **spec)
        return self.run("apply", "-f", "-", *words, text=yaml.safe_dump(body))

    def dataset(self, name: str = "demo") -> dict[str, Any]:
        return dict(self.json("get", "datasets", name))

    def workers(self) -> list[dict[str, Any]]:
        return list(self.json("get", "workers")["items"])

    def until(self, holds: Callable[[], bool]) -> None:
        """Ask again until it is so: what another process will show has no event here."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.02)

    def phase(self, name: str = "demo") -> str:
        return str(self.dataset(name)["status"]["phase"])

    def script(self, worker: str, **script: Any) -> None:
        """What that worker says in its heartbeats from now on."""
        target = self.home / "workers" / worker / "script.json"
        target.with_suffix(".new").write_text(json.dumps(script))
        target.with_suffix(".new").replace(target)

    def close(self) -> None:
        self.run("down")
        for process in self._foreground:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)


def wait_gone(pids: list[int]) -> None:
    """Until none of these processes lives."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([descriptor], [], [], PATIENCE)[0], f"process {pid} still lives"
        os.close(descriptor)
