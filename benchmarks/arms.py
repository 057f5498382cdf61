"""Tools of arms: a meter of seconds and CPU, arms in fresh child processes, and an empty page cache.

A peer runs in a process of its own where its threads, event loops or memory would disturb the others:
`in_child("benchmarks.s3_clients:boto3_arm", {...})` imports that function there, calls it with the keywords and
returns what it returns (JSON), with what the child cost.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_TREE = Path(__file__).resolve().parents[1]
_DROP = Path("/proc/sys/vm/drop_caches")


class Meter:
    """What a `with` block took: `seconds`, and `cpu` seconds of this process (all threads) and its ended children."""

    seconds = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        self._cpu_before, self._before = _cpu(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._before, _cpu() - self._cpu_before


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@dataclass(frozen=True, slots=True)
class ChildRun:
    """What became of one child process."""

    value: Any
    """What the function returned."""
    seconds: float
    """From start to end, imports included."""
    cpu: float
    """CPU seconds, imports included."""
    peak_rss: int
    """Bytes."""


def in_child(function: str, arguments: Mapping[str, Any], *, python: str = sys.executable) -> ChildRun:
    """Call `module:name` in a fresh process. Raises RuntimeError where it fails; its messages went to stderr."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(_TREE), os.environ.get("PYTHONPATH", "")]))
    command = [python, "-m", "benchmarks.arms", function, json.dumps(dict(arguments))]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    with child.stdout as out:
        text = out.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{function} ended with exit code {child.returncode}; see its messages above")
    seconds = time.perf_counter() - began
    return ChildRun(json.loads(text), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def drop_page_cache() -> bool:
    """Write back and empty the kernel's page cache; False where this process may not (the caller says so)."""
    os.sync()
    try:
        _DROP.write_text("3\n")
    except OSError:
        return False
    return True


def _main(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    # Only the result may stand on stdout: what a library prints goes to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    value = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    with out:
        json.dump(value, out)


if __name__ == "__main__":
    _main(*sys.argv[1:])
