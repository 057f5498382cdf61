"""Files of a Dataset as Python files: right bytes in every order of reads, and how much they fetch for them."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cache_engine.errors import CacheEngineError, InvalidValue, NotFound, ObjectChanged, SourceUnavailable
from cache_engine.file_object import DatasetFile, open_file
from cache_engine.sizes import GIB, KIB, MIB
from tests.fakes.client import Body, MemoryClient, connect, publish


def pattern(start: int, stop: int) -> bytes:
    """Eight bytes for every multiple of eight: their own offset."""
    first, last = start // 8, -(-stop // 8)
    whole = b"".join((8 * i).to_bytes(8, "little") for i in range(first, last))
    return whole[start - 8 * first : stop - 8 * first]


SIZE = 9 * MIB + 12_345
CONTENT = pattern(0, SIZE)


@pytest.fixture
def client() -> MemoryClient:
    publish("films", {"reel/one.bin": CONTENT, "empty": b"", "lines.txt": b"first\nsecond\nthird"})
    return connect("films")


def fetched(client: MemoryClient) -> int:
    return sum(length for _, _, length in client.log)


@pytest.mark.parametrize("step", [1, 4096, 100_000, 3 * MIB, SIZE, SIZE + 1])
def test_a_sequential_read_gives_every_byte_and_fetches_each_once(client: MemoryClient, step: int) -> None:
    publish("films", {"reel/one.bin": CONTENT[: 300_000 if step == 1 else SIZE]})
    client = connect("films")
    with open_file(client, "reel/one.bin") as file:
        parts = iter(lambda: file.read(step), b"")
        assert b"".join(parts) == CONTENT[: file.size]
    assert fetched(client) == file.size


def test_requests_of_a_sequential_read_grow(client: MemoryClient) -> None:
    with open_file(client, "reel/one.bin") as file:
        while file.read(64 * KIB):
            pass
    assert [length // MIB for _, _, length in sorted(client.log)] == [1, 2, 4, 2]


def test_the_next_window_is_under_way_while_this_one_is_consumed(client: MemoryClient) -> None:
    """The client that is asked for 0-1 MiB sees the request for what follows without anybody reading so far."""
    asked = threading.Event()
    client.reader.script = lambda key, offset, length: asked.set() if offset == MIB else None
    with open_file(client, "reel/one.bin") as file:
        file.read(600 * KIB)
        assert asked.wait(30)
        assert file.tell() < MIB


def test_at_most_one_window_is_under_way(client: MemoryClient) -> None:
    """However far the client jumps about while a window hangs, no second thread is begun."""
    gate, hung = threading.Event(), threading.Event()

    def script(key: bytes, offset: int, length: int) -> None:
        if offset == MIB and threading.current_thread().name == "readahead":
            hung.set()
            gate.wait(30)

    client.reader.script = script
    with open_file(client, "reel/one.bin") as file:
        file.read(600 * KIB)
        assert hung.wait(30)
        for start in (5 * MIB, 0, 7 * MIB, 3 * MIB):
            file.seek(start)
            assert file.read(900 * KIB) == CONTENT[start : start + 900 * KIB]
        assert sum(t.name == "readahead" for t in threading.enumerate()) == 1
        gate.set()


def test_random_reads_of_4_kib_fetch_less_than_a_block_each(client: MemoryClient) -> None:
    rng = random.Random(7)
    with open_file(client, "reel/one.bin") as file:
        for _ in range(200):
            start = rng.randrange(SIZE - 4096)
            file.seek(start)
            assert file.read(4096) == CONTENT[start : start + 4096]
    assert max(length for _, _, length in client.log) <= MIB
    assert fetched(client) <= 200 * 64 * KIB + MIB


def test_random_operations_agree_with_a_file_of_the_operating_system(client: MemoryClient, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(CONTENT)
    rng = random.Random(11)
    with open_file(client, "reel/one.bin") as ours, (tmp_path / "model").open("rb") as model:
        for _ in range(400):
            if rng.random() < 0.4:
                where = rng.choice([(rng.randrange(SIZE + 99), 0), (-rng.randrange(SIZE), 2), (0, 1)])
                assert ours.seek(*where) == model.seek(*where)
            step = rng.choice([0, 1, 100, 65_536, 70_000, MIB, 2 * MIB + 3])
            assert ours.read(step) == model.read(step)
            assert ours.tell() == model.tell()


def test_readinto_lands_in_the_callers_buffer_without_a_window(client: MemoryClient) -> None:
    buffer = bytearray(4 * MIB)
    with DatasetFile(client, "reel/one.bin") as file:
        assert file.readinto(buffer) == 4 * MIB
        assert buffer == CONTENT[: 4 * MIB]
    assert client.log == [(b"reel/one.bin", 0, 4 * MIB)]


def test_readall_is_one_request_from_the_position_on(client: MemoryClient) -> None:
    with open_file(client, "reel/one.bin") as file:
        file.seek(SIZE - 5 * MIB)
        assert file.read() == CONTENT[-5 * MIB :]
        assert file.read() == b""
    assert len(client.log) == 1


def test_lines_text_and_an_empty_file(client: MemoryClient) -> None:
    assert list(io.TextIOWrapper(open_file(client, "lines.txt"))) == ["first\n", "second\n", "third"]
    with open_file(client, "empty") as file:
        assert (file.size, file.read(), file.read(5), file.readline()) == (0, b"", b"", b"")


@pytest.mark.case("B01")
def test_opened_and_closed_without_a_read_asks_for_nothing(client: MemoryClient) -> None:
    open_file(client, "reel/one.bin").close()
    assert client.log == []
    with open_file(client, "reel/one.bin") as file:
        assert file.read(1000) == CONTENT[:1000]


@pytest.mark.case("A37")
@pytest.mark.parametrize("start", [2**31 - 32, 2**32 - 32, 5 * GIB + 3 - 3])
def test_offsets_beyond_4_gib_are_exact(start: int) -> None:
    size = 5 * GIB + 3
    publish("large", {"five": Body(size, pattern)})
    with open_file(connect("large"), "five") as file:
        assert file.seek(0, os.SEEK_END) == file.size == size
        file.seek(start)
        assert file.read(64) == pattern(start, min(size, start + 64))


def test_a_missing_file_and_a_directory_are_not_opened(client: MemoryClient) -> None:
    for path, word in (("nope", "no file"), ("reel", "directory")):
        with pytest.raises(NotFound, match=word):
            open_file(client, path)


def test_a_closed_file_and_a_bad_seek_are_refused(client: MemoryClient) -> None:
    raw = DatasetFile(client, "lines.txt")
    with pytest.raises(InvalidValue):
        raw.seek(-1)
    raw.close()
    for use in (raw.tell, raw.readall, lambda: raw.readinto(bytearray(1)), lambda: pickle.dumps(raw)):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(io.UnsupportedOperation):
        open_file(client, "lines.txt").write(b"x")


def test_a_window_that_failed_is_read_again_and_its_second_error_is_the_callers(client: MemoryClient) -> None:
    fail = threading.Event()
    failures = []

    def script(key: bytes, offset: int, length: int) -> None:
        if offset >= MIB and (not failures or fail.is_set()):
            failures.append(threading.current_thread().name)
            raise SourceUnavailable("the source is down")

    client.reader.script = script
    with open_file(client, "reel/one.bin") as file:
        while file.tell() < 2 * MIB:
            assert file.read(64 * KIB) == CONTENT[file.tell() - 64 * KIB : file.tell()]
        assert failures == ["readahead"]
        fail.set()
        with pytest.raises(SourceUnavailable):
            file.read()


def test_several_threads_share_one_buffered_file(client: MemoryClient) -> None:
    seen: list[bytes] = []
    with open_file(client, "reel/one.bin") as file:

        def consume() -> None:
            while part := file.read(96 * KIB):
                seen.append(part)

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == sorted(CONTENT[i : i + 96 * KIB] for i in range(0, SIZE, 96 * KIB))


@pytest.mark.parametrize("opened", [open_file, DatasetFile])
def test_a_pickled_file_goes_on_where_it_was(client: MemoryClient, opened: Callable[..., DatasetFile]) -> None:
    with opened(client, "reel/one.bin") as file:
        file.seek(70_000)
        with pickle.loads(pickle.dumps(file)) as other:
            assert type(other) is type(file)
            assert other.read(100) == CONTENT[70_000:70_100]


def test_a_pickled_file_never_changes_its_version_on_the_way(client: MemoryClient) -> None:
    with open_file(client, "lines.txt") as file:
        state = pickle.dumps(file)
    publish("films", {"lines.txt": b"FIRST\nsecond\nthird"})
    with pytest.raises(ObjectChanged, match=r"lines\.txt"):
        pickle.loads(state)


def _sum_of(file: io.BufferedReader, start: int, answer: multiprocessing.SimpleQueue[int]) -> None:
    file.seek(start)
    answer.put(sum(file.read(3 * MIB)))


@pytest.mark.case("B20")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_every_start_method_read_the_parents_open_file(method: str, tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "one.bin").write_bytes(CONTENT)
    context = multiprocessing.get_context(method)
    with open_file(connect("films", f"dir:{tmp_path}"), "one.bin") as file:
        file.read(600 * KIB)  # a window is in hand, another under way or landed
        answer = context.SimpleQueue()
        child = context.Process(target=_sum_of, args=(file, MIB, answer))
        child.start()
        assert answer.get() == sum(CONTENT[MIB : 4 * MIB])
        child.join()
        assert file.read(100) == CONTENT[600 * KIB : 600 * KIB + 100], "the parent's position is its own"


@pytest.mark.case("B20")
def test_a_fork_while_a_window_hangs_leaves_the_child_free(client: MemoryClient) -> None:
    gate, hung = threading.Event(), threading.Event()
    parent = os.getpid()

    def script(key: bytes, offset: int, length: int) -> None:
        if os.getpid() == parent and offset == MIB:
            hung.set()
            gate.wait(30)

    client.reader.script = script
    with open_file(client, "reel/one.bin") as file:
        file.read(600 * KIB)
        assert hung.wait(30)
        context = multiprocessing.get_context("fork")
        answer = context.SimpleQueue()
        child = context.Process(target=_sum_of, args=(file, MIB, answer))
        child.start()
        assert answer.get() == sum(CONTENT[MIB : 4 * MIB])
        child.join()
        gate.set()


@pytest.mark.case("A05")
@pytest.mark.case("A10")
def test_hidden_objects_open_by_their_exact_key() -> None:
    publish("odd", {"foo": b"I am foo", "foo/bar": b"I am bar", "filled-dir/": b"marker", "filled-dir/x": b"x"})
    client = connect("odd")
    assert open_file(client, "foo").read() == b"I am foo"
    assert open_file(client, b"filled-dir/").read() == b"marker"
    with pytest.raises(CacheEngineError):
        open_file(client, "filled-dir")


def test_the_state_line(client: MemoryClient) -> None:
    file = open_file(client, "lines.txt")
    assert "films/lines.txt" in repr(file) and "18 bytes" in repr(file)
    file.close()
    assert "closed" in repr(file)
