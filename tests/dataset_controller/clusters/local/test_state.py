"""Who owns a state directory."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cache_engine.errors import InvalidValue
from dataset_controller.clusters.local.state import StateDirectory, owner_of, stop_owner

OWNER = """
import sys, signal
from pathlib import Path
from dataset_controller.clusters.local.state import StateDirectory
state = StateDirectory(Path(sys.argv[1]))
print("owned", flush=True)
signal.sigwait({signal.SIGUSR1})
"""


@contextmanager
def another_owner(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"owned\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "a" / "state")
    assert stat.S_IMODE((tmp_path / "a" / "state").stat().st_mode) == 0o700
    state.release()


def test_a_second_owner_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with another_owner(tmp_path) as first:
        assert owner_of(tmp_path) == first.pid
        with pytest.raises(InvalidValue, match=f"process {first.pid} runs a controller on {tmp_path}"):
            StateDirectory(tmp_path)
    assert owner_of(tmp_path) == 0


def test_a_killed_owner_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    with another_owner(tmp_path) as first:
        first.kill()
        first.wait()
        StateDirectory(tmp_path).release()


def test_asking_for_the_owner_does_not_take_the_place(tmp_path: Path) -> None:
    assert owner_of(tmp_path) == 0
    (tmp_path / "lock").touch()
    assert owner_of(tmp_path) == 0


def test_stopping_waits_until_the_owner_is_gone(tmp_path: Path) -> None:
    with another_owner(tmp_path) as first:
        assert stop_owner(tmp_path, 10.0) == first.pid
        assert first.wait() != 0
    assert stop_owner(tmp_path, 10.0) == 0


def test_the_note_is_whole_and_goes_with_the_owner(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.announce({"url": "http://127.0.0.1:1", "pid": os.getpid()})
    assert json.loads((tmp_path / "controller.json").read_text())["pid"] == os.getpid()
    state.release()
    assert not (tmp_path / "controller.json").exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match="cannot be the state directory"):
        StateDirectory(tmp_path / "file" / "state")
