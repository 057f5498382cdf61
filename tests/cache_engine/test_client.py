"""The client in people's hands: forks in every state, refreshes, edges of its arguments."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cache_engine.access import MountAccess
from cache_engine.block import BLOCK
from cache_engine.client import Client
from cache_engine.errors import ControllerUnavailable, InvalidValue, NotFound
from tests.cache_engine.plane import Plane, noise

FILES = {"f": noise(3 * BLOCK + 9, 1), "d/s": b"small", "d/e": b"", "d/t": noise(700, 2)}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane"), FILES, ("n0", "n1")) as plane:
        yield plane


def reads_all(client: Client) -> bool:
    whole = all(client.read(name) == body for name, body in FILES.items())
    with client.open("f") as file:
        part = file.read(BLOCK + 1)
    return whole and client.read_many(list(FILES)) == list(FILES.values()) and part == FILES["f"][: BLOCK + 1]


def in_child(work: Callable[[], bool]) -> None:
    """Fork as a DataLoader does; the child has 20 s."""
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.case("B20")
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("before", ["nothing", "read", "read_many", "open", "closed"])
def test_a_forked_child_reads_whatever_its_parent_did_before(plane: Plane, before: str, local: bool) -> None:
    with plane.client(local=local, node="n0") as client:
        if before in ("read", "closed"):
            assert client.read("f") == FILES["f"]
        if before == "read_many":
            client.read_many(list(FILES))
        file = client.open("f") if before == "open" else None
        if file:
            file.read(10)
        if before == "closed":
            client.close()
        for _ in range(2):
            in_child(lambda: reads_all(client))
        if file:
            in_child(lambda: file.read(10) == FILES["f"][10:20])
            assert file.read(10) == FILES["f"][10:20]
            file.close()
        assert reads_all(client)


@pytest.mark.case("B20")
def test_a_fork_while_other_threads_read_is_no_trap(plane: Plane) -> None:
    stop = threading.Event()
    with plane.client() as client:

        def read() -> None:
            while not stop.is_set():
                assert reads_all(client)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(25):
                in_child(lambda: reads_all(client))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@pytest.mark.case("B20")
@pytest.mark.parametrize("taken", ["client", "reader", "stats"])
def test_a_lock_that_was_held_at_the_fork_is_no_trap(plane: Plane, taken: str) -> None:
    with plane.client(source=True) as client:
        locks = {"client": client._lock, "reader": client.reader._lock, "stats": client.stats()._lock}
        with locks[taken]:
            in_child(lambda: reads_all(client))
        assert reads_all(client)


@pytest.mark.case("B20")
def test_a_child_reads_the_source_by_itself_when_all_workers_are_gone(tmp_path: Path) -> None:
    with Plane(tmp_path, FILES) as plane, plane.client(source=True) as client:
        plane.workers[0].stop()
        assert client.read("f") == FILES["f"]
        with client._lock:
            in_child(lambda: reads_all(client))


def _read_in_spawned(pickled: bytes, answers: multiprocessing.SimpleQueue) -> None:
    with pickle.loads(pickled) as client:
        answers.put(reads_all(client))


@pytest.mark.case("B20")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_client_pickles_into_a_process_that_was_not_forked(plane: Plane, method: str) -> None:
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    with plane.client() as client:
        process = context.Process(target=_read_in_spawned, args=(pickle.dumps(client), answers))
        process.start()
        process.join(60)
    assert process.exitcode == 0 and answers.get()


def test_offsets_and_lengths_at_the_edges(plane: Plane) -> None:
    body = FILES["f"]
    with plane.client() as client:
        assert client.read("f", len(body)) == client.read("f", 10**12) == client.read("f", 0, 0) == b""
        assert client.read("f", len(body) - 1, 10**12) == body[-1:]
        for wrong in ((-1, None), (0, -1)):
            with pytest.raises(InvalidValue):
                client.read("f", *wrong)
        with pytest.raises(InvalidValue):
            client.readinto("f", bytearray(1), -1)
        assert client.readinto("f", bytearray(0)) == 0
        assert client.read("d/s") == client.read(b"d/s") == b"small"
        for absent in ("d", "nope", "d/s/x"):
            with pytest.raises(NotFound):
                client.read(absent)
        with pytest.raises(NotFound):
            client.read_many(["f", "nope"])
        assert client.read_many([]) == [] and list(client.iter_many([])) == []


def test_a_refresh_moves_the_client_and_leaves_open_files_on_the_old_snapshot(tmp_path: Path) -> None:
    with Plane(tmp_path, FILES) as plane, plane.client() as client:
        assert not client.refresh()
        with client.open("f") as file:
            assert file.read(5) == FILES["f"][:5]
            assert client.read("f") == FILES["f"]
            plane.put({"f": b"new", "added": b"a"})
            plane.publish(snapshot=True)
            assert client.read("f") == FILES["f"], "a client stays on its snapshot"
            assert client.refresh()
            assert (client.read("f"), client.read("added")) == (b"new", b"a")
            assert file.read() == FILES["f"][5:]


def test_a_manifest_that_came_wrong_is_not_used(tmp_path: Path) -> None:
    with Plane(tmp_path, FILES) as plane:
        good = plane.control._manifests[plane.manifest().digest]
        other = tmp_path / "other"
        raw = bytearray(good.read_bytes())
        raw[len(raw) // 2] ^= 1
        other.write_bytes(raw)
        plane.control._manifests[plane.manifest().digest] = other
        with pytest.raises((InvalidValue, ControllerUnavailable)):
            plane.client()
        plane.control._manifests[plane.manifest().digest] = good
        with plane.client() as client:
            assert reads_all(client)


def test_a_workers_damaged_copy_of_a_manifest_is_downloaded_again(tmp_path: Path) -> None:
    with Plane(tmp_path, FILES) as plane:
        with plane.client() as client:
            assert reads_all(client)
        plane.workers[0].stop()
        kept = next((tmp_path / "w0" / "manifests").glob("*.manifest"))
        kept.write_bytes(kept.read_bytes()[:100])
        plane.restart(0)
        plane.publish()
        with plane.client() as client:
            assert reads_all(client)


@pytest.mark.parametrize("local", [False, True])
def test_a_snapshot_is_read_from_its_own_mounts_after_the_dataset_got_others(tmp_path: Path, local: bool) -> None:
    names = [f"f{n}" for n in range(8)]
    for place in ("old", "new"):
        (tmp_path / place).mkdir()
        for name in names:
            (tmp_path / place / name).write_bytes(f"{place} {name}".encode())
            os.utime(tmp_path / place / name, ns=(10**18, 10**18))  # only the mount tells the two apart
    with Plane(tmp_path, FILES, ("n0", "n1")) as plane:
        plane.mount = MountAccess(url=(tmp_path / "old").as_uri())
        plane.publish(mounts=(plane.mount,))
        plane.publish(snapshot=True)
        with plane.client(source=local) as before, plane.client(source=local) as moved, moved.open("f1") as file:
            assert before.read_many(names[:1]) == [b"old f0"], "the workers have loaded the Dataset"
            plane.mount = MountAccess(url=(tmp_path / "new").as_uri())
            plane.publish(mounts=(plane.mount,))
            plane.publish(snapshot=True)
            plane.beat(0)
            plane.beat(1)
            if local:
                for worker in plane.workers:
                    worker.stop()
            assert moved.refresh()
            assert before.read_many(names) == [f"old {name}".encode() for name in names]
            assert file.read() == b"old f1"
            assert moved.read_many(names) == [f"new {name}".encode() for name in names]


def test_many_paths_are_any_iterable_but_not_one_path(plane: Plane) -> None:
    with plane.client() as client:
        assert client.read_many(name for name in FILES) == list(FILES.values())
        assert list(client.iter_many(iter(FILES))) == list(FILES.items())
        with pytest.raises(InvalidValue, match="one path where a list"):
            client.read_many("f")
        with pytest.raises(InvalidValue, match="one path where a list"):
            list(client.iter_many(b"f"))


def test_a_closed_client_reads_on_in_every_way(plane: Plane) -> None:
    client = plane.client()
    file = client.open("f")
    assert reads_all(client)
    client.close()
    assert reads_all(client) and file.read() == FILES["f"]
    client.close()
