"""`forebay://` through fsspec: names, the rules of existence, sharing, forks, and what must be refused."""

from __future__ import annotations

import errno
import gc
import io
import json
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cache_engine.errors import AccessDenied, ControllerUnavailable, NotFound, SourceUnavailable
from cache_engine.filesystem import ForebayFileSystem
from cache_engine.sizes import GIB
from tests.fakes.client import OPENED, Body, MemoryClient, connect, publish

KEYS: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "input" / "a_keys.json").read_text())


@pytest.fixture
def fs() -> ForebayFileSystem:
    publish(
        "birds",
        {
            "readme.txt": b"ten birds\n",
            "owls/barn.csv": b"a,b\n1,2\n",
            "owls/tawny.csv": b"a,b\n3,4\n",
            "gulls/x/y": b"y",
        },
    )
    fresh = ForebayFileSystem(connect=connect, skip_instance_cache=True)
    for name in ("birds", *KEYS):  # an instance of an earlier test may still be alive, and share its snapshot
        fresh.invalidate_cache(name)
    return fresh


def shown(fs: ForebayFileSystem, group: str) -> tuple[ForebayFileSystem, dict[str, bytes]]:
    objects = {key: body.encode() for key, body in KEYS[group].items()}
    publish(group, objects)
    return fs, objects


def test_the_protocol_is_registered_and_urls_open(fs: ForebayFileSystem) -> None:
    with fsspec.open("forebay://birds/readme.txt", connect=connect) as file:
        assert file.read() == b"ten birds\n"
    with fsspec.open("forebay://birds/readme.txt", "rt", connect=connect) as text:
        assert text.readlines() == ["ten birds\n"]
    assert isinstance(fsspec.filesystem("forebay", connect=connect), ForebayFileSystem)


def test_listing_info_and_walks_agree(fs: ForebayFileSystem) -> None:
    assert fs.ls("forebay://birds", detail=False) == ["birds/gulls", "birds/owls", "birds/readme.txt"]
    assert fs.ls("birds/owls/", detail=False) == ["birds/owls/barn.csv", "birds/owls/tawny.csv"]
    assert fs.ls("birds/readme.txt") == [fs.info("birds/readme.txt")]
    assert fs.find("birds") == ["birds/gulls/x/y", "birds/owls/barn.csv", "birds/owls/tawny.csv", "birds/readme.txt"]
    assert fs.glob("birds/**/*.csv") == ["birds/owls/barn.csv", "birds/owls/tawny.csv"]
    assert [(d, f) for _, d, f in fs.walk("birds/gulls")] == [(["x"], []), ([], ["y"])]
    assert fs.du("birds") == 10 + 8 + 8 + 1
    entry = fs.info("/birds/owls/barn.csv")
    assert (entry["name"], entry["size"], entry["type"]) == ("birds/owls/barn.csv", 8, "file")
    assert entry["version"].startswith("etag:") and fs.modified("birds/readme.txt").year == 2023


def test_reads_of_every_kind(fs: ForebayFileSystem) -> None:
    path = "birds/owls/barn.csv"
    assert fs.cat(path) == fs.cat_file(path) == fs.read_bytes(path) == b"a,b\n1,2\n"
    assert (
        fs.cat_file(path, 2, 5) == b"b\n1" and fs.cat_file(path, -4) == b"1,2\n" and fs.cat_file(path, 1, -5) == b",b"
    )
    assert fs.cat_file(path, 5, 2) == b"" and fs.cat_file(path, 7, 100) == b"\n"
    assert (fs.head(path, 3), fs.tail(path, 3)) == (b"a,b", b",2\n")
    assert fs.read_block(path, 1, 4, delimiter=b"\n") == b"1,2\n"
    assert fs.cat_ranges([path, "birds/readme.txt"], [0, 4], [1, 9]) == [b"a", b"birds"]
    assert fs.cat_ranges([path] * 3, 0, 2) == [b"a,"] * 3
    missing = fs.cat_ranges(["birds/none"], 0, 1)[0]
    assert isinstance(missing, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["birds/none"], 0, 1, on_error="raise")


def test_many_files_travel_together(fs: ForebayFileSystem) -> None:
    assert fs.cat("birds/owls/*.csv") == {"birds/owls/barn.csv": b"a,b\n1,2\n", "birds/owls/tawny.csv": b"a,b\n3,4\n"}
    client = fs.client("birds")
    assert isinstance(client, MemoryClient) and client.batches == [2]
    assert len(fs.cat("birds", recursive=True)) == 4
    paths = ["birds/readme.txt", "birds/none"]
    with pytest.raises(FileNotFoundError):
        fs.cat(paths)
    assert fs.cat(paths, on_error="omit") == {"birds/readme.txt": b"ten birds\n"}
    assert isinstance(fs.cat(paths, on_error="return")["birds/none"], NotFound)
    assert dict(fs.get_mapper("birds/owls")) == {"barn.csv": b"a,b\n1,2\n", "tawny.csv": b"a,b\n3,4\n"}


def test_get_copies_whole_files_and_streams_into_open_ones(fs: ForebayFileSystem, tmp_path: Path) -> None:
    fs.get("birds/owls", str(tmp_path / "o"), recursive=True)
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == ["barn.csv", "tawny.csv"]
    stream = io.BytesIO()
    fs.get_file("birds/readme.txt", stream)
    assert stream.getvalue() == b"ten birds\n"


def test_a_copy_that_fails_leaves_the_target_as_it_was(fs: ForebayFileSystem, tmp_path: Path) -> None:
    target = tmp_path / "readme.txt"
    target.write_bytes(b"old")
    client = fs.client("birds")
    assert isinstance(client, MemoryClient)

    def fail(key: bytes, offset: int, length: int) -> None:
        raise SourceUnavailable("the source is down")

    client.reader.script = fail
    with pytest.raises(SourceUnavailable):
        fs.get_file("birds/readme.txt", str(target))
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["readme.txt"]


WRITES: dict[str, Callable[[ForebayFileSystem], object]] = {
    "mkdir": lambda fs: fs.mkdir("birds/new"),
    "makedirs": lambda fs: fs.makedirs("birds/new/er", exist_ok=True),
    "makedir": lambda fs: fs.makedir("birds/new"),
    "mkdirs": lambda fs: fs.mkdirs("birds/new"),
    "rmdir": lambda fs: fs.rmdir("birds/owls"),
    "rm": lambda fs: fs.rm("birds/owls", recursive=True),
    "rm_file": lambda fs: fs.rm_file("birds/readme.txt"),
    "delete": lambda fs: fs.delete("birds/readme.txt"),
    "touch": lambda fs: fs.touch("birds/new"),
    "pipe": lambda fs: fs.pipe("birds/new", b"x"),
    "pipe_file": lambda fs: fs.pipe_file("birds/new", b"x"),
    "write_bytes": lambda fs: fs.write_bytes("birds/new", b"x"),
    "write_text": lambda fs: fs.write_text("birds/new", "x"),
    "put": lambda fs: fs.put("/etc/hostname", "birds/new"),
    "put_file": lambda fs: fs.put_file("/etc/hostname", "birds/new"),
    "upload": lambda fs: fs.upload("/etc/hostname", "birds/new"),
    "copy": lambda fs: fs.copy("birds/readme.txt", "birds/new"),
    "cp_file": lambda fs: fs.cp_file("birds/readme.txt", "birds/new"),
    "mv": lambda fs: fs.mv("birds/readme.txt", "birds/new"),
    "rename": lambda fs: fs.rename("birds/readme.txt", "birds/new"),
    **{
        f"open {mode}": lambda fs, mode=mode: fs.open("birds/new", mode) for mode in ("wb", "ab", "xb", "r+b", "w", "x")
    },
    "mapper": lambda fs: fs.get_mapper("birds").__setitem__("new", b"x"),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_as_on_a_read_only_file_system(fs: ForebayFileSystem, write: str) -> None:
    with pytest.raises(OSError, match="read-only") as refusal:
        WRITES[write](fs)
    assert refusal.value.errno == errno.EROFS
    assert fs.find("birds") == ["birds/gulls/x/y", "birds/owls/barn.csv", "birds/owls/tawny.csv", "birds/readme.txt"]


@pytest.mark.case("A01")
@pytest.mark.case("A02")
@pytest.mark.case("A03")
@pytest.mark.case("A07")
@pytest.mark.parametrize("group", ["A01", "A02", "A03", "A07"])
def test_every_listed_name_reads_back_its_own_body(fs: ForebayFileSystem, group: str) -> None:
    fs, objects = shown(fs, group)
    files = [path for path in fs.find(group) if fs.isfile(path)]
    bodies = {path: fs.cat_file(path) for path in files}
    assert sorted(bodies.values()) == sorted(body for key, body in objects.items() if not key.endswith("/"))
    for path, body in bodies.items():
        assert fs.open(path).read() == fs.cat_ranges([path], 0, None)[0] == body
        assert fs.info(path)["size"] == len(body)
    assert fs.cat(files) == bodies


@pytest.mark.case("A05")
def test_a_key_that_is_file_and_folder_lists_once_and_both_bodies_read(fs: ForebayFileSystem) -> None:
    fs, _ = shown(fs, "A05")
    assert fs.ls("A05", detail=False) == ["A05/foo"]
    assert fs.isdir("A05/foo") and not fs.isfile("A05/foo")
    assert fs.find("A05") == ["A05/foo/bar"]
    assert (fs.cat_file("A05/foo"), fs.cat("A05/foo/bar")) == (b"I am foo", b"I am bar")
    assert fs.open("A05/foo").read() == b"I am foo"


@pytest.mark.case("A10")
@pytest.mark.parametrize("slash", ["", "/"])
def test_folder_markers_are_directories_to_every_call(fs: ForebayFileSystem, slash: str) -> None:
    fs, _ = shown(fs, "A10")
    for name, content in (("empty-dir", []), ("filled-dir", ["A10/filled-dir/x"])):
        path = f"A10/{name}{slash}"
        assert fs.exists(path) and fs.isdir(path) and not fs.isfile(path)
        assert fs.info(path) == {"name": f"A10/{name}", "size": 0, "type": "directory"}
        assert fs.ls(path, detail=False) == fs.find(path) == content
        assert list(fs.walk(path)) == [(f"A10/{name}", [], [c.rsplit("/", 1)[1] for c in content])]
    assert fs.client("A10").read(b"filled-dir/") == b"marker with a body"
    assert fs.cat_file("A10/filled-dir/\uff0500") == b"marker with a body"


@pytest.mark.case("A33")
def test_folders_without_markers_list_and_stat_at_every_level(fs: ForebayFileSystem) -> None:
    publish("deep", {"deep/x/y.bin": b"y", "deep/x.y/z": b"z"})
    assert fs.ls("deep", detail=False) == ["deep/deep"]
    assert fs.ls("deep/deep", detail=False) == ["deep/deep/x", "deep/deep/x.y"]
    for path in ("deep", "deep/deep", "deep/deep/x", "deep/deep/x.y"):
        assert fs.info(path) == {"name": path, "size": 0, "type": "directory"}
    assert fs.find("deep/deep/x") == ["deep/deep/x/y.bin"]


@pytest.mark.case("A24")
@pytest.mark.parametrize("fault", [AccessDenied("the source refuses"), ControllerUnavailable("no controller answers")])
def test_existence_is_false_only_for_what_is_not_there(fault: Exception) -> None:
    def refuse(name: str, api: str | None = None) -> MemoryClient:
        raise fault

    broken = ForebayFileSystem(connect=refuse, skip_instance_cache=True)
    for ask in (broken.exists, broken.isdir, broken.isfile, broken.ls, broken.info, broken.open, broken.cat_file):
        with pytest.raises(type(fault)):
            ask("birds/readme.txt")


def test_existence_of_what_is_there_and_what_is_not(fs: ForebayFileSystem) -> None:
    for path in ("birds/none", "birds/owls/none", "birds/readme.txt/below", "no-such-dataset/x", "no-such-dataset"):
        assert not (fs.exists(path) or fs.isdir(path) or fs.isfile(path))
        for ask in (fs.info, fs.ls):
            with pytest.raises(FileNotFoundError):
                ask(path)
    assert not fs.exists("birds/owls//barn.csv") and not fs.isfile("birds/../birds/readme.txt")
    assert fs.exists("birds") and fs.isdir("birds") and fs.isdir("")
    with pytest.raises(FileNotFoundError, match="directory"):
        fs.open("birds/owls")


@pytest.mark.case("A37")
def test_sizes_and_ranges_beyond_4_gib(fs: ForebayFileSystem) -> None:
    publish("large", {"five": Body(5 * GIB + 3, lambda start, stop: bytes(i % 251 for i in range(start, stop)))})
    assert fs.size("large/five") == 5 * GIB + 3
    for start in (2**31 - 1, 2**32 - 1, 5 * GIB):
        expected = bytes([start % 251, (start + 1) % 251])
        assert fs.cat_file("large/five", start, start + 2) == expected
        with fs.open("large/five") as file:
            file.seek(start)
            assert file.read(2) == expected and file.tell() == start + 2


@pytest.mark.case("B23")
def test_a_new_object_shows_after_the_cache_is_invalidated_and_open_files_stay_old(fs: ForebayFileSystem) -> None:
    assert not fs.exists("birds/new")
    old = fs.open("birds/readme.txt")
    publish("birds", {"new": b"n", "readme.txt": b"changed, and longer"})
    assert not fs.exists("birds/new") and fs.cat("birds/readme.txt") == b"ten birds\n"
    fs.invalidate_cache("forebay://birds/anything")
    assert fs.ls("birds", detail=False) == ["birds/new", "birds/readme.txt"]
    assert fs.cat("birds/readme.txt") == b"changed, and longer"
    assert old.read() == b"ten birds\n"


def test_the_version_tells_when_a_file_changed(fs: ForebayFileSystem) -> None:
    before = fs.ukey("birds/readme.txt"), fs.checksum("birds/readme.txt")
    fs.invalidate_cache()
    assert (fs.ukey("birds/readme.txt"), fs.checksum("birds/readme.txt")) == before
    publish("birds", {"readme.txt": b"TEN BIRDS\n"})
    fs.invalidate_cache()
    assert fs.ukey("birds/readme.txt") != before[0] and fs.checksum("birds/readme.txt") != before[1]


def test_instances_of_many_threads_share_one_client_which_closes_with_the_last_of_them() -> None:
    publish("shared", {"x": b"x"})
    OPENED.clear()

    def use() -> None:
        assert fsspec.filesystem("forebay", connect=connect).cat("shared/x") == b"x"

    keeper = ForebayFileSystem(connect=connect, skip_instance_cache=True)
    keeper.cat("shared/x")
    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(OPENED) == 1
    ForebayFileSystem.clear_instance_cache()
    file = keeper.open("shared/x")
    del keeper
    gc.collect()
    assert not OPENED[0].closed, "an open file keeps its client"
    assert file.read() == b"x"
    file.close()
    del file
    gc.collect()
    assert OPENED[0].closed


class PipeReader(MemoryClient):
    """Holds two descriptors while it is open, as a real one holds sockets."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pipe = os.pipe()

    def close(self) -> None:
        if not self.closed:
            os.close(self.pipe[0])
            os.close(self.pipe[1])
        super().close()


def connect_with_pipes(name: str, api: str | None = None) -> PipeReader:
    return PipeReader(name, {b"%d" % i: b"body" for i in range(5000)})


@pytest.mark.case("B21")
def test_5000_files_over_20_instances_leave_no_descriptor_open() -> None:
    start = len(os.listdir("/proc/self/fd"))
    instances = [ForebayFileSystem(connect=connect_with_pipes, number=i) for i in range(20)]
    for i in range(5000):
        with instances[i % 20].open(f"pipes/{i}") as file:
            assert file.read(1) == b"b"
    assert len(os.listdir("/proc/self/fd")) <= start + 4, "twenty instances hold one client"
    del instances, file
    ForebayFileSystem.clear_instance_cache()
    gc.collect()
    assert abs(len(os.listdir("/proc/self/fd")) - start) <= 5


def _cat(fs: ForebayFileSystem, paths: list[str], answer: multiprocessing.SimpleQueue[list[bytes]]) -> None:
    answer.put([fs.cat(path) for path in paths])


@pytest.mark.case("B20")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_every_start_method_read_through_the_parents_file_system(method: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    paths = [f"set/{i}" for i in range(200)]
    for path in paths:
        (tmp_path / path).write_bytes(path.encode())
    context = multiprocessing.get_context(method)
    fs = ForebayFileSystem(api=f"dir:{tmp_path}", connect=connect)
    assert fs.cat(paths[0]) == b"set/0"
    answers = [context.SimpleQueue() for _ in range(4)]
    children = [context.Process(target=_cat, args=(fs, paths[i::4], answer)) for i, answer in enumerate(answers)]
    for child in children:
        child.start()
    assert [answer.get() for answer in answers] == [[p.encode() for p in paths[i::4]] for i in range(4)]
    for child in children:
        child.join()


@pytest.mark.case("B20")
def test_a_fork_while_another_thread_opens_a_dataset_leaves_the_child_free(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"a")
    inside, gate = threading.Event(), threading.Event()

    def slow(name: str, api: str | None = None) -> MemoryClient:
        inside.set()
        gate.wait(30)
        return connect(name, api)

    thread = threading.Thread(target=lambda: ForebayFileSystem(connect=slow).exists("set/a"))
    thread.start()
    assert inside.wait(30)
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=_cat, args=(ForebayFileSystem(f"dir:{tmp_path}", connect), ["set/a"], answer))
    child.start()
    assert answer.get() == [b"a"]
    child.join()
    gate.set()
    thread.join()


def test_file_systems_and_their_open_files_pickle(fs: ForebayFileSystem) -> None:
    assert pickle.loads(pickle.dumps(fs)).cat("birds/readme.txt") == b"ten birds\n"
    with fs.open("birds/readme.txt") as file:
        file.read(4)
        assert pickle.loads(pickle.dumps(file)).read() == b"birds\n"


def test_a_path_without_a_dataset_is_not_found(fs: ForebayFileSystem) -> None:
    with pytest.raises(FileNotFoundError, match="forebay://DATASET/path"):
        fs.open("forebay://")
