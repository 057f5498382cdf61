import os
import random
import threading
import tracemalloc

import pytest
from crc32c import crc32c

from cache_engine.block import BLOCK, block_count
from cache_engine.local_cells import LocalCells
from cache_engine.quota import PAGE
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import (
    BOOT,
    an_object,
    body,
    cell_path,
    child,
    disk_bytes,
    fill,
    held_blocks,
    line_of,
    put,
)


@pytest.fixture
def make_tier(tmp_path):
    made = []

    def make(quota):
        made.append(DiskTier(tmp_path, quota, boot_id=BOOT))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


def test_the_longest_unused_cell_leaves_to_make_room(make_tier, tmp_path):
    tier = make_tier(4 * BLOCK)
    a, b, c, d = (an_object(key, BLOCK) for key in "abcd")
    for obj in (a, b, c):
        assert fill(tier, obj)
    assert held_blocks(tier, a) == [0]
    assert fill(tier, d)
    assert [bool(held_blocks(tier, obj)) for obj in (a, b, c, d)] == [True, False, True, True]
    assert disk_bytes(tmp_path) <= tier.used <= tier.quota


def test_near_copies_leave_before_anything_owned(make_tier):
    tier = make_tier(4 * BLOCK)
    owned, near, other, new = (an_object(key, BLOCK) for key in ("owned", "near", "other", "new"))
    fill(tier, owned)
    fill(tier, other)
    fill(tier, near, near=True)
    assert fill(tier, new)
    assert [bool(held_blocks(tier, obj)) for obj in (owned, other, near, new)] == [True, True, False, True]


def test_all_leased_and_full_is_refused_and_counted(make_tier):
    tier = make_tier(4 * BLOCK)
    objects = [an_object(key, BLOCK) for key in "abc"]
    for obj in objects:
        fill(tier, obj)
    leases = [tier.lease(obj) for obj in objects]
    new = an_object("new", BLOCK)
    assert not fill(tier, new)
    assert tier.stats().counts["refused"] == 1
    for lease in leases:
        assert lease.ready(range(1))
        lease.close()
    assert fill(tier, new)


def test_what_is_larger_than_the_quota_evicts_nothing(make_tier):
    tier = make_tier(4 * BLOCK)
    small = an_object("small", 1000)
    fill(tier, small)
    with tier.lease(an_object("huge", 100 * BLOCK)) as lease:
        assert not lease.reserve(range(16))
    assert held_blocks(tier, small) == [0]


def test_a_quota_of_nothing_caches_nothing_and_reads_go_past(make_tier):
    tier = make_tier(0)
    assert not fill(tier, an_object("k", 10))
    assert tier.used == 0


@pytest.mark.case("B13")
def test_three_rounds_over_an_object_larger_than_the_tier_are_right_and_partly_kept(make_tier, tmp_path):
    tier = make_tier(4 * BLOCK)
    obj = an_object("large", 6 * BLOCK)
    for _ in range(3):
        for block in range(6):
            with tier.lease(obj) as lease:
                if lease.missing([block]):
                    assert put(lease, obj, block)
                    lease.vouch()
                assert lease.ready(range(block, block + 1))
                assert os.pread(lease.fd, BLOCK, block * BLOCK) == body(obj, block)
            assert disk_bytes(tmp_path) <= tier.used <= tier.quota
        assert held_blocks(tier, obj) == [3, 4, 5]
    with LocalCells(tmp_path).open(obj) as cell:
        assert [cell.has(b * BLOCK, (b + 1) * BLOCK) for b in range(6)] == [False, False, False, True, True, True]


def test_a_piece_that_a_lease_asked_for_is_not_punched_under_it(make_tier):
    tier = make_tier(4 * BLOCK)
    obj = an_object("large", 6 * BLOCK)
    with tier.lease(obj) as reader:
        for block in range(3):
            assert put(reader, obj, block)
        with tier.lease(obj) as other:
            assert not put(other, obj, 3)
            assert reader.ready(range(3))
    assert fill(tier, obj, [3])
    assert held_blocks(tier, obj) == [1, 2, 3]


def test_a_complete_large_cell_leaves_as_a_whole_never_by_pieces(make_tier, tmp_path):
    tier = make_tier(8 * BLOCK)
    large = an_object("large", 5 * BLOCK)
    fill(tier, large)
    fd = os.open(cell_path(tmp_path, large), os.O_RDONLY)
    fill(tier, an_object("a", 2 * BLOCK))
    tier_full_of_leases = tier.lease(an_object("a", 2 * BLOCK))
    assert tier_full_of_leases.ready(range(2))
    assert not fill(tier, an_object("b", 2 * BLOCK))  # the nameless file is still open here, so still charged
    assert held_blocks(tier, large) == []
    assert os.pread(fd, BLOCK, 0) == body(large, 0)
    os.close(fd)
    assert fill(tier, an_object("b", 2 * BLOCK))
    tier_full_of_leases.close()


LEASE = """
import sys
from cache_engine.local_cells import LocalCells
from tests.cache_engine.tier_kit import an_object
cell = LocalCells(sys.argv[1]).open(an_object(sys.argv[2], int(sys.argv[3])))
print(cell, flush=True)
sys.stdin.read()
"""


def test_a_lease_of_another_process_keeps_its_cell_until_that_process_is_killed(make_tier, tmp_path):
    tier = make_tier(4 * BLOCK)
    kept, other = an_object("kept", BLOCK), an_object("other", BLOCK)
    fill(tier, kept)
    fill(tier, other)
    with child(LEASE, tmp_path, "kept", BLOCK) as reader:
        assert "1/1 blocks" in line_of(reader)
        for key in "abc":
            assert fill(tier, an_object(key, BLOCK))
        assert held_blocks(tier, kept) == [0]
        assert held_blocks(tier, other) == []
        reader.kill()
        reader.wait()
        for key in "def":
            assert fill(tier, an_object(key, BLOCK))
        assert held_blocks(tier, kept) == []


def test_a_lease_of_another_process_keeps_the_pieces_of_a_large_cell(make_tier, tmp_path):
    tier = make_tier(4 * BLOCK)
    large = an_object("large", 6 * BLOCK)
    fill(tier, large, [0, 1, 2])
    with child(LEASE, tmp_path, "large", 6 * BLOCK) as reader:
        assert "3/6 blocks" in line_of(reader)
        assert not fill(tier, large, [3])
        assert held_blocks(tier, large) == [0, 1, 2]
        reader.kill()
        reader.wait()
        assert fill(tier, large, [3])
    assert held_blocks(tier, large) == [1, 2, 3] or held_blocks(tier, large) == [0, 2, 3]


def test_dropped_bytes_stay_charged_while_another_process_leases_them(make_tier, tmp_path):
    tier = make_tier(4 * BLOCK)
    obj = an_object("k", 2 * BLOCK)
    fill(tier, obj)
    used = tier.used
    with child(LEASE, tmp_path, "k", 2 * BLOCK) as reader:
        assert "2/2 blocks" in line_of(reader)
        tier.drop(obj)
        assert tier.stats().lingering == tier.used == used
        assert not fill(tier, an_object("new", 3 * BLOCK - 1))
        reader.kill()
        reader.wait()
        assert fill(tier, an_object("new", 3 * BLOCK - 1))
    assert tier.stats().lingering == 0


def test_a_full_tier_replaces_vouchers_within_its_quota(make_tier, tmp_path):
    """With no room for two vouchers at once the old one goes first."""
    obj = an_object("k", 2 * BLOCK)
    tier = make_tier(2 * BLOCK + PAGE)
    with tier.lease(obj) as lease:
        assert put(lease, obj, 0)
        lease.vouch()
        assert put(lease, obj, 1)
        assert tier.used == tier.quota
        lease.vouch()
        assert tier.used == tier.quota
    assert disk_bytes(tmp_path) <= tier.quota
    assert LocalCells(tmp_path).open(obj).complete


class Model:
    """What a tier may say: only blocks that were written since their cell last left, and never too many bytes."""

    def __init__(self):
        self.written = {}

    def wrote(self, obj, block):
        self.written.setdefault(obj, set()).add(block)

    def check(self, obj, held):
        assert set(held) <= self.written.get(obj, set())
        self.written[obj] = set(held)


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_keep_to_the_quota_and_to_right_bytes(make_tier, tmp_path, seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    tier = make_tier(rng.choice([5, 9, 12]) * BLOCK + rng.randrange(0, 20) * PAGE)
    sizes = [rng.choice([300, PAGE, BLOCK, BLOCK + 1, 3 * BLOCK, 7 * BLOCK, 20 * BLOCK]) for _ in range(14)]
    objects = [an_object(f"{seed}-{number}", size) for number, size in enumerate(sizes)]
    model, leases = Model(), []
    for _ in range(250):
        obj = rng.choice(objects)
        act = rng.choice(["fill", "fill", "fill", "check", "hold", "release", "drop", "discard", "cancel"])
        if act == "fill":
            block = rng.randrange(block_count(obj.size))
            with tier.lease(obj, label=rng.choice("xy"), near=rng.random() < 0.3) as lease:
                if lease.missing([block]) and put(lease, obj, block):
                    model.wrote(obj, block)
                if rng.random() < 0.8:
                    lease.vouch()
        elif act == "check":
            model.check(obj, held_blocks(tier, obj))
        elif act == "hold" and len(leases) < 3:
            leases.append(tier.lease(obj))
        elif act == "release" and leases:
            leases.pop(rng.randrange(len(leases))).close()
        elif act == "drop":
            tier.drop(obj)
        elif act == "discard":
            with tier.lease(obj) as lease:
                lease.discard(rng.randrange(block_count(obj.size)))
        elif act == "cancel":
            with tier.lease(obj) as lease:
                lease.reserve(sorted(rng.sample(range(block_count(obj.size)), k=1)))
        assert disk_bytes(tmp_path) <= tier.used <= tier.quota
    for lease in leases:
        lease.close()
    for obj in objects:
        model.check(obj, held_blocks(tier, obj))
    held = {label: sum(size for _, size in tier.objects(label)) for label in ("x", "y")}
    assert held == {label: tier.held(label) + tier.held(label, near=True) for label in ("x", "y")}
    for obj in objects:
        tier.drop(obj)
    assert tier.used == disk_bytes(tmp_path) == 0


def writers(tier, objects, rounds, pause=lambda: None):
    """Threads that each fill random objects, with `pause` called in the middle; returns their errors."""
    bodies = {obj: [body(obj, block) for block in range(block_count(obj.size))] for obj in objects}
    failures = []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(rounds):
                obj = rng.choice(objects)
                with tier.lease(obj, label=str(seed)) as lease:
                    for block in lease.missing(range(block_count(obj.size))):
                        view = bodies[obj][block]
                        if not (lease.reserve([block]) and lease.write(block, view, crc32c(view))):
                            break
                        lease.vouch()
                    pause()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def read_vouched(directory, obj):
    """Every block that a voucher on the disk vouches for is there (its CRC is compared)."""
    cell = LocalCells(directory).open(obj)
    for block in range(block_count(obj.size)) if cell else ():
        start, stop = block * BLOCK, min(obj.size, (block + 1) * BLOCK)
        if cell.has(start, stop):
            cell.readinto(memoryview(bytearray(stop - start)), start)
    if cell:
        cell.close()


def mixed_objects():
    return [an_object(str(number), size) for number in range(12) for size in (5000, BLOCK, 7 * BLOCK)]


def test_many_writers_keep_to_the_quota_with_right_bytes(make_tier, tmp_path):
    tier = make_tier(12 * BLOCK)
    seen = []

    def look():
        seen.append((disk_bytes(tmp_path), tier.used))
        for obj in mixed_objects():
            read_vouched(tmp_path, obj)

    together = threading.Barrier(6, action=look)
    assert not writers(tier, mixed_objects(), 40, together.wait)
    assert all(on_disk <= used <= tier.quota for on_disk, used in seen)
    assert tier.stats().counts["evicted"] > 0
    for obj in mixed_objects():
        held_blocks(tier, obj)
        tier.drop(obj)
    assert tier.used == disk_bytes(tmp_path) == 0


def test_a_disk_that_counts_every_byte_at_every_moment_sees_the_quota_kept(small_disk):
    """A tmpfs gives one atomic number, which no walk over files does; nameless open files are in it too."""
    tier = DiskTier(small_disk / "cache", 12 * BLOCK, boot_id=BOOT)
    stop, worst = threading.Event(), [0]

    def watch():
        while not stop.is_set():
            disk = os.statvfs(small_disk)
            worst[0] = max(worst[0], (disk.f_blocks - disk.f_bfree) * disk.f_frsize)

    watcher = threading.Thread(target=watch)
    watcher.start()
    failures = writers(tier, mixed_objects(), 40)
    stop.set()
    watcher.join()
    assert not failures
    assert 8 * BLOCK < worst[0] <= tier.quota + 2 * PAGE  # the lock file and the root
    tier.close()


@pytest.mark.case("B05")
def test_eight_writers_of_fifty_cells_each_leave_four_hundred_and_no_temporary_file(make_tier, tmp_path):
    tier = make_tier(64 * BLOCK)
    start = threading.Barrier(8)

    def work(writer):
        start.wait()
        for number in range(50):
            assert fill(tier, an_object(f"{writer}/{number}", 2000), label="uid")

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tier.objects("uid"))) == 400
    names = [name for _, _, files in os.walk(tmp_path / "cells") for name in files]
    assert len(names) == 800
    assert not [name for name in names if name.endswith(".tmp")]
    assert tier.held("uid") == 400 * 2000


@pytest.mark.case("B17")
def test_a_cell_costs_less_than_two_kibibytes_of_memory(make_tier):
    tier = make_tier(64 * BLOCK)
    objects = [an_object(f"train/{number:08d}.jpg", 1) for number in range(1500)]
    tracemalloc.start()
    for obj in objects[:500]:
        fill(tier, obj, label="uid")
    before = tracemalloc.get_traced_memory()[0]
    for obj in objects[500:]:
        fill(tier, obj, label="uid")
    grown = tracemalloc.get_traced_memory()[0] - before
    for _ in range(2):
        settled = tracemalloc.get_traced_memory()[0]
        for obj in objects[500:]:
            assert held_blocks(tier, obj) == [0]
    again = tracemalloc.get_traced_memory()[0] - settled
    tracemalloc.stop()
    assert grown < 2048 * 1000
    assert again < 50 * 1000
