"""`forebay warm` as people type it: text, JSON, exit codes, Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cache_engine.access import Member
from cache_engine.errors import InvalidValue
from cache_engine.ring import Ring
from prefetch.commands import register
from tests.fakes.client import MemoryClient, connect, publish
from tests.fakes.fill_worker import FillWorker

Run = Callable[..., int]


@pytest.fixture
def worker() -> Iterator[FillWorker]:
    publish("birds", {"owls/barn": b"x" * 1500, "owls/tawny": b"y" * 500, "gull": b"z"})
    client = connect("birds")
    with ExitStack() as stack:
        worker = stack.enter_context(FillWorker("ada", client.manifest))
        worker.ring = Ring.of([worker.member])
        yield worker


@pytest.fixture
def forebay(worker: FillWorker) -> Run:
    parser = argparse.ArgumentParser()

    def opener(name: str, environ: Any) -> MemoryClient:
        client = connect(name)
        client.control.members = (worker.member,)
        return client

    register(parser.add_subparsers(), opener)

    def run(*argv: str) -> int:
        args = parser.parse_args(argv)
        return int(args.run(args, {}))

    return run


def test_a_warm_dataset_is_exit_code_0_and_one_line(forebay: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert forebay("warm", "birds") == 0
    printed = capsys.readouterr()
    assert printed.out == "3 files, 2.0 KiB of 2.0 KiB held and verified\n"
    assert "warming birds: 100 %  2.0 KiB of 2.0 KiB" in printed.err and "\x1b" not in printed.err


def test_json_goes_to_stdout_alone(forebay: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert forebay("warm", "birds", "owls", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"files": 2, "bytes": 2000, "verified": 2000, "failed": []}


def test_a_failed_file_is_exit_code_1_and_named(
    forebay: Run, worker: FillWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.script = lambda times, row: row | ({"error": "denied", "retryable": False} if row["index"] == 0 else {})
    assert forebay("warm", "birds", "-o", "json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["failed"] == [{"path": "gull", "reason": "denied"}]
    assert "not held: gull: denied" in printed.err


def test_a_concurrency_of_nothing_is_refused(forebay: Run) -> None:
    with pytest.raises(InvalidValue, match="concurrency"):
        forebay("warm", "birds", "--concurrency", "0")


PROGRAM = """
import argparse, sys
from prefetch.commands import register
from tests.fakes.client import connect
from cache_engine.access import Member

def opener(name, environ):
    client = connect(name, "dir:" + sys.argv[1])
    client.control.members = (Member("ada", sys.argv[2], "n", "/d"),)
    return client

parser = argparse.ArgumentParser()
register(parser.add_subparsers(), opener)
args = parser.parse_args(["warm", "birds"])
sys.exit(args.run(args, {}))
"""


def test_ctrl_c_ends_it_at_once_while_a_worker_is_still_filling(tmp_path: Path, worker: FillWorker) -> None:
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "gull").write_bytes(b"z")
    worker.gate.clear()
    member: Member = worker.member
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), member.url], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert worker.inside.wait(30)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert child.returncode == 130
    assert "stopped" in said and "Traceback" not in said
