"""A worker over its life: what it keeps, what it forgets, whom it asks, and how it ends."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cache_engine import wire
from cache_engine.block import BLOCK
from cache_engine.errors import NotFound, ObjectChanged
from tests.cache_engine.plane import Plane, noise
from tests.cache_engine.tier_kit import disk_bytes, flip_bit

BIG = noise(5 * BLOCK + 9, 1)


def read_all(plane: Plane, files: dict[str, bytes], **options: object) -> None:
    with plane.client(**options) as client:
        for name, body in files.items():
            assert client.read(name) == body


def owners(plane: Plane, name: str, count: int = 1) -> list[str]:
    with plane.client() as client:
        obj = client.manifest.object_id(client.index(name))
        return client.reader.membership.ring.owners(obj, 0, count)


# -- what a heartbeat brings ---------------------------------------------------------------------------------------


def test_versions_that_a_new_snapshot_no_longer_has_count_for_nobody_and_old_readers_finish(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG, "g": b"same"}) as plane, plane.client() as old:
        assert (old.read("f"), old.read("g")) == (BIG, b"same")
        plane.put({"f": b"new"})
        plane.publish(snapshot=True)
        plane.beat()
        assert plane.control.await_report("w0")["datasets"] == {"uid-d": {"cached": 4, "near": 0}}
        assert old.read("f") == BIG, "from the cache: the source has it no more"
        with plane.client() as fresh:
            assert fresh.read("f") == b"new"


def test_a_snapshot_that_a_reader_named_before_the_heartbeat_retires_old_versions_too(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane:
        plane.control.interval = 60
        plane.beat(times=1)
        read_all(plane, {"f": BIG})
        plane.put({"f": b"new"})
        plane.publish(snapshot=True)
        read_all(plane, {"f": b"new"})
        worker = plane.workers[0].worker
        worker.follow({"d": plane.control.access("d").epoch})
        assert worker.tier.labels() == {"uid-d": {"cached": 3, "near": 0}}


def test_versions_superseded_while_the_worker_was_away_are_retired_when_it_is_back(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG, "g": b"x"}) as plane:
        read_all(plane, {"f": BIG, "g": b"x"})
        plane.workers[0].stop()
        plane.put({"f": b"new"})
        plane.restart(0)
        plane.publish(snapshot=True)
        read_all(plane, {"g": b"x"})
        plane.beat()
        assert plane.control.await_report("w0")["datasets"]["uid-d"]["cached"] == 1


def test_the_cells_of_a_deleted_dataset_are_gone_within_three_heartbeats(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane, plane.client() as old:
        assert old.read("f") == BIG
        plane.put({"f": b"new"})
        plane.publish(snapshot=True)
        read_all(plane, {"f": b"new"})
        assert old.read("f", 0, BLOCK) == BIG[:BLOCK], "a cell without an owner is left of the old snapshot"
        plane.control.delete("d")
        plane.beat()
        assert [path for path in plane.workers[0].cells() if path.stat().st_size == 3] == []
        assert plane.workers[0].worker.tier.labels() == {}
        with pytest.raises(NotFound):
            plane.client()


def test_old_versions_of_a_deleted_dataset_are_gone_with_it_and_those_of_others_stay(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane, plane.client() as old:
        for name in ("d", "twin"):
            if name == "twin":
                plane.publish(replace(plane.control.access("d"), dataset="twin", uid="uid-twin"))
            with plane.client(name) as client:
                assert client.read("f") == BIG
        plane.put({"f": b"new"})
        plane.publish(snapshot=True)
        plane.publish(replace(plane.control.access("d"), dataset="twin", uid="uid-twin"))
        plane.beat()
        plane.control.delete("twin")
        plane.beat()
        assert old.read("f") == BIG, "of another Dataset that has the same source"
        plane.control.delete("d")
        plane.beat()
        assert plane.workers[0].cells() == []


def test_the_cells_of_a_dataset_deleted_while_the_worker_was_away_are_gone_too(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane:
        read_all(plane, {"f": BIG})
        plane.workers[0].stop()
        plane.control.delete("d")
        plane.restart(0)
        plane.beat()
        assert plane.workers[0].cells() == []


def test_two_datasets_over_one_source_share_cells_until_the_last_of_them_goes(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane:
        twin = replace(plane.control.access("d"), dataset="twin", uid="uid-twin")
        plane.publish(twin)
        read_all(plane, {"f": BIG})
        asked = plane.blocks_read("f")
        read_all(plane, {"f": BIG}, dataset="twin")
        assert plane.blocks_read("f") == asked and len(plane.workers[0].cells()) == 1
        plane.control.delete("d")
        plane.beat()
        assert plane.control.await_report("w0")["datasets"] == {"uid-twin": {"cached": len(BIG), "near": 0}}
        plane.control.delete("twin")
        plane.beat()
        assert plane.workers[0].cells() == []


@pytest.mark.parametrize("refusal", [(400, "InvalidValue"), (403, "AccessDenied"), (503, ""), (500, "CorruptBlock")])
def test_a_worker_goes_on_beating_whatever_the_controller_says(tmp_path: Path, refusal: tuple[int, str]) -> None:
    with Plane(tmp_path, {"f": b"x"}) as plane:
        plane.control.refusals.append(refusal)
        plane.beat()
        assert plane.control.refusals == []


def test_a_worker_goes_on_beating_when_a_dataset_becomes_one_that_it_cannot_open(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane, plane.client() as client:
        assert client.read("f", 0, BLOCK) == BIG[:BLOCK]
        mount = replace(plane.mount, url="nosuchscheme://x", credentials={"bearerToken": {"env": "NOT_SET"}})
        plane.publish(mounts=(mount,))
        plane.beat()
        assert client.read("f", 0, BLOCK) == BIG[:BLOCK], "what is cached needs no source"


def test_a_changed_object_is_told_to_the_controller_even_if_a_heartbeat_is_refused(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": b"old", "g": BIG}) as plane, plane.client() as client:
        plane.put({"f": b"new", "g": BIG[1:]})
        plane.control.refusals += [(503, "ControllerUnavailable")] * 2
        with pytest.raises(ObjectChanged):
            client.read_many(["f"])
        plane.beat()
        assert ["d"] in [report["changed"] for report in plane.control.reports["w0"]]


def test_reads_go_on_without_a_controller_and_the_worker_beats_when_it_is_back(tmp_path: Path) -> None:
    files = {"warm": BIG, "cold": noise(BLOCK, 2)}
    with Plane(tmp_path, files) as plane, plane.client() as client:
        assert client.read("warm") == BIG
        plane.control.stop()
        assert client.read("warm") == BIG
        assert client.read("cold") == files["cold"]
        plane.control.restart()
        plane.beat()


# -- near copies ---------------------------------------------------------------------------------------------------


def near_plane(tmp_path: Path, near: str) -> Plane:
    return Plane(tmp_path, {"f": BIG}, ("a", "b", "c"), near_copies=near)


def reader_beside(plane: Plane) -> tuple[int, str]:
    """(number, node) of a worker that does not own `f`."""
    owner = owners(plane, "f")[0]
    number = next(n for n, worker in enumerate(plane.workers) if worker.config.id != owner)
    return number, plane.workers[number].config.node


@pytest.mark.parametrize("near, held", [("never", 0), ("onRead", BLOCK), ("complete", len(BIG))])
def test_a_near_copy_is_kept_as_the_dataset_says(tmp_path: Path, near: str, held: int) -> None:
    with near_plane(tmp_path, near) as plane:
        number, node = reader_beside(plane)
        with plane.client(node=node) as client:
            for _ in range(3):
                assert client.read("f", 0, BLOCK) == BIG[:BLOCK]
        beside = plane.workers[number]
        while near == "complete" and beside.worker.tier.held("uid-d", near=True) < held:
            plane.beat(number, 1)
        assert beside.worker.tier.held("uid-d", near=True) == held
        assert beside.worker.tier.held("uid-d") == 0, "a near copy never counts as an owner's"
        assert plane.blocks_read("f") == sorted(set(plane.blocks_read("f"))), "the source is asked by the owner alone"


def test_a_worker_that_may_keep_no_near_copy_still_answers_anybody(tmp_path: Path) -> None:
    with near_plane(tmp_path, "never") as plane:
        number, _ = reader_beside(plane)
        answer = plane.http(number).request("GET", "/v1/datasets/d/files/f")
        assert answer.read(1 << 30) == BIG
        indices = wire.pack_indices([0])
        answer = plane.http(number).request("POST", plane.target(tail="/batch"), (), indices)
        assert wire.unpack_rows(answer.read(16))[0].code == 400
        assert disk_bytes(Path(plane.workers[number].config.directory)) == 0
        assert plane.blocks_read("f") == list(range(6))


def test_a_report_about_a_near_copy_leaves_it_a_near_copy(tmp_path: Path) -> None:
    with near_plane(tmp_path, "onRead") as plane:
        number, node = reader_beside(plane)
        read_all(plane, {"f": BIG}, node=node)
        plane.http(number).request("POST", plane.target("f", "/bad?block=0")).close()
        tier = plane.workers[number].worker.tier
        assert (tier.held("uid-d"), tier.held("uid-d", near=True)) == (0, len(BIG))


def test_an_object_larger_than_the_tier_is_not_completed_in_vain(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": noise(12 * BLOCK, 3)}, ("a", "b", "c"), quota=8 * BLOCK) as plane:
        number, node = reader_beside(plane)
        with plane.client(node=node) as client:
            client.read("f", 0, BLOCK)
        plane.beat(number)
        assert plane.blocks_read("f") == [0]


# -- owners --------------------------------------------------------------------------------------------------------


def test_two_owners_hold_the_bytes_and_the_source_is_read_once(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BIG}, ("a", "b", "c"), owners=2) as plane:
        both = owners(plane, "f", 2)
        body = json.dumps({"files": [0]}).encode()
        for number, worker in enumerate(plane.workers):
            answer = plane.http(number).request("POST", plane.target(tail="/fill"), (), body)
            row = json.loads(answer.read(1 << 20))["files"][0]
            assert row == {"index": 0, "bytes": len(BIG) if worker.config.id in both else 0}
        assert plane.blocks_read("f") == list(range(6))
        first = next(worker for worker in plane.workers if worker.config.id == both[0])
        first.stop()
        plane.store.rule("status", match="GET *", code=500)
        read_all(plane, {"f": BIG})


@pytest.mark.case("B18")
def test_fifty_clients_of_three_workers_cost_the_source_one_copy(tmp_path: Path) -> None:
    files = {f"f{n}": noise(3 * BLOCK, n) for n in range(4)}
    with Plane(tmp_path, files, ("a", "b", "c"), first_byte=0.02) as plane:
        start = threading.Barrier(50)

        def read(number: int) -> None:
            with plane.client(node="abc"[number % 3], connections=1) as client:
                start.wait()
                for name, body in files.items():
                    assert client.read(name) == body

        with ThreadPoolExecutor(50) as pool:
            list(pool.map(read, range(50)))
        assert {name: plane.blocks_read(name) for name in files} == {name: [0, 1, 2] for name in files}


@pytest.mark.case("B13")
@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
def test_every_epoch_over_a_tier_too_small_reads_right_bytes(tmp_path: Path, nodes: tuple[str, ...]) -> None:
    body = noise(6 * BLOCK, 6)
    with Plane(tmp_path, {"f": body}, nodes, quota=4 * BLOCK + 65536) as plane, plane.client(node="b") as client:
        for _ in range(3):
            for block in range(6):
                assert client.read("f", block * BLOCK, BLOCK) == body[block * BLOCK : (block + 1) * BLOCK]
            assert client.read("f") == body
            for worker in plane.workers:
                assert disk_bytes(Path(worker.config.directory)) <= worker.worker.tier.used <= plane.quota


def test_a_file_larger_than_the_tier_is_served_by_its_path_and_in_ranges(tmp_path: Path) -> None:
    body = noise(40 * BLOCK + 5, 40)
    with Plane(tmp_path, {"f": body}, quota=8 * BLOCK) as plane:
        assert plane.http().request("GET", "/v1/datasets/d/files/f").read(1 << 30) == body
        read_all(plane, {"f": body})
        assert disk_bytes(Path(plane.workers[0].config.directory)) <= plane.quota


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.case("B11")
@pytest.mark.parametrize("offset", [0, BLOCK + 5, len(BIG) - 1])
def test_a_flipped_bit_on_the_disk_is_seen_dropped_and_fetched_again(tmp_path: Path, offset: int) -> None:
    small = noise(3000, 8)
    with Plane(tmp_path, {"f": BIG, "s": small}) as plane:
        read_all(plane, {"f": BIG, "s": small})
        worker = plane.workers[0]
        by_size = {path.stat().st_size: path for path in worker.cells()}

        def damage() -> int:
            flip_bit(by_size[len(BIG)], offset)
            flip_bit(by_size[len(small)], 7)
            return int(worker.stats()["bytes"]["bad_blocks"])

        before = damage()
        with plane.client() as client:
            assert client.read("f") == BIG
            assert client.read_many(["s"]) == [small]
            assert client.stats().bad_blocks == 2
            assert worker.stats()["bytes"]["bad_blocks"] == before + 2
            assert (client.read("f"), client.read_many(["s"])) == (BIG, [small])
            assert client.stats().bad_blocks == 2, "what was bad is right now"
        before = damage()
        with plane.client() as client:
            assert client.read("f", offset, 1) == BIG[offset : offset + 1], "a range inside the block"
            assert client.read("s", 7, 1) == small[7:8]
        assert worker.stats()["bytes"]["bad_blocks"] == before + 2
        before = damage()
        assert plane.http().request("GET", "/v1/datasets/d/files/f").read(1 << 30) == BIG
        assert plane.http().request("GET", "/v1/datasets/d/files/s").read(1 << 30) == small
        assert worker.stats()["bytes"]["bad_blocks"] == before + 2


@pytest.mark.case("B11")
def test_a_flipped_bit_on_the_disk_is_seen_by_a_reader_on_the_workers_own_host(tmp_path: Path) -> None:
    small = noise(3000, 8)
    with Plane(tmp_path, {"f": BIG, "s": small}) as plane:
        with plane.client(local=True, node="n0") as client:
            assert (client.read("f"), client.read_many(["s"])) == (BIG, [small])
            assert (client.read("f"), client.read_many(["s"])) == (BIG, [small])
            assert client.stats().bytes["local"] == len(BIG) + len(small)
            for path in plane.workers[0].cells():
                flip_bit(path, 9)
            assert (client.read("f"), client.read_many(["s"])) == (BIG, [small])
            assert client.stats().bad_blocks >= 2
            local = client.stats().bytes["local"]
            assert (client.read("f"), client.read_many(["s"])) == (BIG, [small])
            assert client.stats().bytes["local"] == local + len(BIG) + len(small), "repaired in place"


@pytest.mark.case("B14")
@pytest.mark.parametrize("length", [0, 5 * BLOCK, len(BIG) - 1])
def test_a_cell_cut_short_under_a_live_worker_is_no_error_and_is_mended(tmp_path: Path, length: int) -> None:
    with Plane(tmp_path, {"f": BIG}) as plane:
        read_all(plane, {"f": BIG})
        with open(plane.workers[0].cells()[0], "r+b") as cell:
            cell.truncate(length)
        read_all(plane, {"f": BIG}, source=True)
        read_all(plane, {"f": BIG})
        assert plane.http().request("GET", "/v1/datasets/d/files/f").read(1 << 30) == BIG


@pytest.mark.case("B22")
@pytest.mark.parametrize("what", ["cells", ""])
def test_reads_go_on_when_the_cache_directory_is_removed(tmp_path: Path, what: str) -> None:
    import shutil

    files = {"f": BIG, "s": noise(300, 1), "cold": noise(2 * BLOCK, 5)}
    with Plane(tmp_path, files) as plane, plane.client() as client:
        assert (client.read("f"), client.read("s")) == (BIG, files["s"])
        shutil.rmtree(Path(plane.workers[0].config.directory) / what)
        for _ in range(2):
            for name, body in files.items():
                assert client.read(name) == body
            assert client.read_many(list(files)) == list(files.values())
            assert plane.http().request("GET", "/v1/datasets/d/files/f").read(1 << 30) == BIG
