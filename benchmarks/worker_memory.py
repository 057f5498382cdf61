"""How much memory does a worker need to fill and to serve a 2 GiB object, beyond what it had when it started?

Peak resident memory as the kernel counted it (VmHWM), read before the first request and after a cold and a warm read
with 8 connections.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Options, Question, Row, at_most, row
from benchmarks.objectstore import StoreProcess
from benchmarks.scene import ENVIRONMENT, KEYS, MIB, dataset, large_file, scratch
from examples.stage import Embedded


def questions(options: Options) -> Iterator[Question | Row]:
    size = (256 if options.quick else 2048) * MIB
    with (
        scratch("memory") as directory,
        Embedded(directory / "home", 1, "--cache-size", "3GiB", env=ENVIRONMENT, out=sys.stderr) as embedded,
    ):
        large_file(directory / "root" / "bucket" / "m" / "large", size)
        with StoreProcess("s3", root=directory / "root", credentials=KEYS) as store:
            embedded.apply(dataset("m", "s3://bucket/m", {"endpoint": store.url, "region": "us-east-1"}, keys=True))
            (pid,) = embedded.worker_pids()
            before = peak(pid)
            with embedded.open("m", 8, local=False, source=False) as client:
                for _ in range(2):
                    client.readinto("large", memoryview(bytearray(size)))
            grown = (peak(pid) - before) / 1e6
    yield row("a worker's peak memory beyond start", "MB", grown, at_most(150), notes={"bytes": size, "connections": 8})


def peak(pid: int) -> int:
    """Peak resident bytes of a process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    sys.exit(report.run({"worker_memory": questions}))
