"""Copies of files and trees: what goes where, whole or not at all, never outside the target."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from cache_engine.copying import CopyPlan, carry_out, plan_copy
from cache_engine.errors import AccessDenied, NotFound, SourceUnavailable
from cache_engine.sizes import MIB
from tests.fakes.client import MemoryClient, connect, publish

LARGE = os.urandom(5 * MIB + 7)
OBJECTS: dict[bytes | str, Any] = {
    "top.txt": b"top",
    "a/1": b"one",
    "a/b/2": b"two",
    "a/b/large": LARGE,
    "a/empty": b"",
}


@pytest.fixture
def client() -> MemoryClient:
    publish("trees", OBJECTS)
    return connect("trees")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def copy(client: MemoryClient, path: str, target: Path, into: bool = False) -> Any:
    return carry_out(client, plan_copy(client, path, str(target), into), lambda done, total: None, 4)


def test_the_whole_dataset_becomes_the_target(client: MemoryClient, tmp_path: Path) -> None:
    done = copy(client, "", tmp_path / "new")
    assert files(tmp_path / "new") == OBJECTS
    assert (done.files, done.bytes, done.failed) == (5, sum(map(len, OBJECTS.values())), [])


@pytest.mark.parametrize(
    ("path", "into", "expected"),
    [
        ("a", False, "t/b/2"),
        ("a", True, "t/a/b/2"),
        ("a/", True, "t/b/2"),
        ("", True, "t/trees/a/b/2"),
        ("/", True, "t/a/b/2"),
        ("a/b/2", False, "t"),
        ("a/b/2", True, "t/2"),
    ],
)
def test_where_a_tree_or_file_lands(client: MemoryClient, tmp_path: Path, path: str, into: bool, expected: str) -> None:
    copy(client, path, tmp_path / "t", into)
    assert (tmp_path / expected).read_bytes() == b"two"


def test_small_files_travel_in_batches(client: MemoryClient, tmp_path: Path) -> None:
    publish("small", {f"{i:03}": b"%d" % i for i in range(150)})
    client = connect("small")
    copy(client, "", tmp_path)
    assert sorted(client.batches) == [22, 64, 64]
    assert len(files(tmp_path)) == 150


def test_progress_counts_every_byte_once(client: MemoryClient, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    plan = plan_copy(client, "", str(tmp_path / "t"), False)
    carry_out(client, plan, lambda done, total: seen.append((done, total)), 4)
    assert seen[-1] == (plan.bytes, plan.bytes) and seen == sorted(seen)


def test_a_file_that_fails_does_not_stop_the_others_and_leaves_nothing(client: MemoryClient, tmp_path: Path) -> None:
    def script(key: bytes, offset: int, length: int) -> None:
        if key in (b"a/1", b"a/b/large"):
            raise SourceUnavailable("the source is down")

    client.reader.script = script
    target = tmp_path / "t"
    (target / "a").mkdir(parents=True)
    (target / "a" / "1").write_bytes(b"as it was")
    done = copy(client, "", target)
    assert sorted(path for path, _ in done.failed) == ["a/1", "a/b/large"] and done.files == 3
    assert files(target) == {"top.txt": b"top", "a/1": b"as it was", "a/b/2": b"two", "a/empty": b""}


def test_a_directory_in_the_place_of_a_file_fails_that_file_only(client: MemoryClient, tmp_path: Path) -> None:
    (tmp_path / "t" / "top.txt").mkdir(parents=True)
    done = copy(client, "", tmp_path / "t")
    assert [path for path, _ in done.failed] == ["top.txt"]
    assert not [name for name in os.listdir(tmp_path / "t") if name.endswith(".part")]


def test_a_link_in_the_target_that_leads_out_of_it_is_refused(client: MemoryClient, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").symlink_to(outside)
    with pytest.raises(AccessDenied, match="leads out of"):
        copy(client, "", tmp_path / "t")
    assert os.listdir(outside) == []


def test_names_that_would_climb_or_are_odd_are_copied_under_their_shown_names(tmp_path: Path) -> None:
    publish("odd", {"../../up": b"up", "x//y": b"y", "./z": b"z", b"\xff\n": b"bytes"})
    done = copy(connect("odd"), "", tmp_path / "t")
    escape = "\uff05"
    assert done.failed == [] and os.listdir(tmp_path) == ["t"]
    assert files(tmp_path / "t") == {
        f"{escape}2E{escape}2E/{escape}2E{escape}2E/up": b"up",
        f"x/{escape}00/y": b"y",
        f"{escape}2E/z": b"z",
        f"{escape}FF{escape}0A": b"bytes",
    }


def test_a_directory_without_a_name_stays_apart_from_the_one_above_it(tmp_path: Path) -> None:
    publish("slashes", {"x/y": b"one", "x//y": b"two", "x///y": b"three"})
    assert copy(connect("slashes"), "x", tmp_path / "t").files == 3
    assert files(tmp_path / "t") == {"y": b"one", "\uff0500/y": b"two", "\uff0500/\uff0500/y": b"three"}


def test_what_no_directory_can_show_is_reported(tmp_path: Path) -> None:
    publish("hidden", {"foo": b"I am foo", "foo/bar": b"bar", "dir/": b"", "n" * 300: b"long"})
    done = copy(connect("hidden"), "", tmp_path / "t")
    reasons = dict(done.failed)
    assert reasons["foo"].startswith("hidden") and "cannot be shown" in reasons["n" * 300]
    assert files(tmp_path / "t") == {"foo/bar": b"bar"} and (tmp_path / "t" / "dir").is_dir()


def test_ctrl_c_leaves_whole_files_and_no_half_ones(client: MemoryClient, tmp_path: Path) -> None:
    publish("many", {f"{i:02}": LARGE for i in range(12)})
    client = connect("many")
    first = threading.Event()

    def progress(done: int, total: int) -> None:
        first.set()
        raise KeyboardInterrupt

    plan: CopyPlan = plan_copy(client, "", str(tmp_path / "t"), False)
    with pytest.raises(KeyboardInterrupt):
        carry_out(client, plan, progress, 2)
    left = files(tmp_path / "t")
    assert len(left) < 12 and all(body == LARGE for body in left.values())


def test_a_path_that_is_not_there(client: MemoryClient, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        plan_copy(client, "nope", str(tmp_path), False)
