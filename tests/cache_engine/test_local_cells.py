import os
import random
from contextlib import ExitStack, closing

import pytest

from cache_engine.block import BLOCK
from cache_engine.errors import CorruptBlock
from cache_engine.local_cells import BadBlock, LocalCells
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import (
    BOOT,
    an_object,
    body,
    cell_path,
    child,
    disk_bytes,
    fill,
    flip_bit,
    held_blocks,
    line_of,
    voucher_path,
)


@pytest.fixture
def tier(tmp_path):
    tier = DiskTier(tmp_path, 64 * BLOCK, boot_id=BOOT)
    yield tier
    tier.close()


@pytest.fixture
def cells(tmp_path):
    return LocalCells(tmp_path)


def whole(obj):  # also by the readers below
    return b"".join(body(obj, block) for block in range(-(-obj.size // BLOCK)))


def test_any_range_of_a_complete_cell_is_read(tier, cells):
    obj = an_object("k", 3 * BLOCK + 100)
    fill(tier, obj)
    right = whole(obj)
    rng = random.Random(5)
    ranges = [(0, obj.size), (0, 1), (obj.size - 1, obj.size), (BLOCK - 1, BLOCK + 1), (BLOCK, 2 * BLOCK)]
    ranges += [tuple(sorted(rng.sample(range(obj.size), 2))) for _ in range(10)]
    for start, stop in ranges:
        with cells.open(obj) as cell:
            for _ in range(2):
                buffer = bytearray(stop - start)
                assert cell.has(start, stop)
                cell.readinto(memoryview(buffer), start)
                assert buffer == right[start:stop]


def test_only_vouched_blocks_are_offered(tier, cells):
    obj = an_object("k", 3 * BLOCK)
    assert cells.open(obj) is None
    fill(tier, obj, [1])
    with cells.open(obj) as cell:
        assert not cell.complete
        assert cell.has(BLOCK, 2 * BLOCK)
        assert not cell.has(BLOCK, 2 * BLOCK + 1)
        assert not cell.has(0, 1)
        assert cell.has(7, 7)


def test_no_bytes_are_always_there(tier, cells):
    empty = an_object("empty", 0)
    assert cells.read_small(empty) == b""
    with cells.open(empty) as cell:
        assert cell.complete
        cell.readinto(memoryview(bytearray()), 0)


@pytest.mark.case("B11")
@pytest.mark.parametrize("offset", [0, BLOCK // 2, BLOCK - 1])
def test_a_flipped_bit_is_found_before_a_byte_is_used(tier, cells, tmp_path, offset):
    obj = an_object("k", 2 * BLOCK)
    fill(tier, obj)
    flip_bit(cell_path(tmp_path, obj), BLOCK + offset)
    with cells.open(obj) as cell:
        buffer = memoryview(bytearray(10))
        cell.readinto(buffer, BLOCK - 10)
        with pytest.raises(CorruptBlock) as caught:
            cell.readinto(buffer, BLOCK - 5)
        assert caught.value.block == 1
        with pytest.raises(BadBlock):
            cell.readinto(memoryview(bytearray(BLOCK)), BLOCK)
    with tier.lease(obj) as lease:
        assert not lease.recheck(1)
    fill(tier, obj)
    with cells.open(obj) as cell:
        cell.readinto(buffer, BLOCK - 5)


def test_small_objects_are_read_whole_and_again(tier, cells):
    for size in (1, 5000, BLOCK):
        obj = an_object("k", size)
        assert cells.read_small(obj) is None
        fill(tier, obj)
        for _ in range(2):
            assert cells.read_small(obj) == body(obj, 0)
    assert cells.read_small(an_object("k", BLOCK + 1)) is None


@pytest.mark.case("B11")
@pytest.mark.parametrize("known", [True, False])
def test_a_flipped_bit_in_a_small_cell_is_found(tier, cells, tmp_path, known):
    obj = an_object("k", 5000)
    fill(tier, obj)
    if known:
        assert cells.read_small(obj) is not None
    flip_bit(cell_path(tmp_path, obj), 4999)
    with pytest.raises(BadBlock, match="read it from the worker"):
        cells.read_small(obj)
    flip_bit(cell_path(tmp_path, obj), 4999)
    assert cells.read_small(obj) == body(obj, 0)


@pytest.mark.case("B14")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("length", [0, 4999])
def test_a_cut_cell_is_not_cached(tier, cells, tmp_path, known, length):
    obj = an_object("k", 5000)
    fill(tier, obj)
    if known:
        assert cells.read_small(obj) is not None
    os.truncate(cell_path(tmp_path, obj), length)
    assert cells.read_small(obj) is None
    assert cells.open(obj) is None


@pytest.mark.case("B14")
def test_a_longer_cell_gives_its_proved_bytes_or_none(tier, cells, tmp_path):
    obj = an_object("k", 5000)
    fill(tier, obj)
    with open(cell_path(tmp_path, obj), "ab") as file:
        file.write(b"x")
    assert cells.open(obj) is None
    assert cells.read_small(obj) == body(obj, 0)


def test_a_damaged_voucher_is_not_cached(tier, cells, tmp_path):
    obj = an_object("k", 5000)
    fill(tier, obj)
    flip_bit(voucher_path(tmp_path, obj), 20)
    assert cells.open(obj) is None
    assert cells.read_small(obj) is None


def test_a_cell_under_anothers_name_is_not_cached(tier, cells, tmp_path):
    right, wrong = an_object("right", 5000), an_object("wrong", 5000)
    fill(tier, right)
    cell_path(tmp_path, wrong).parent.mkdir(exist_ok=True)
    os.link(cell_path(tmp_path, right), cell_path(tmp_path, wrong))
    os.link(voucher_path(tmp_path, right), voucher_path(tmp_path, wrong))
    assert cells.open(wrong) is None
    assert cells.read_small(wrong) is None


def test_a_known_small_cell_that_left_and_is_being_filled_again_is_not_cached_yet(tier, cells):
    obj = an_object("k", 5000)
    fill(tier, obj)
    small = cells.small(obj)
    assert small.read() == body(obj, 0)
    tier.drop(obj)
    assert small.read() is None
    with tier.lease(obj) as lease:
        assert lease.reserve([0])
        assert small.read() is None
    fill(tier, obj)
    assert small.read() == body(obj, 0)


def test_no_directory_is_not_cached(tmp_path):
    cells = LocalCells(tmp_path / "nowhere")
    assert cells.open(an_object("k", 10)) is None
    assert cells.read_small(an_object("k", 10)) is None


def test_closing_twice_is_once(tier, cells):
    obj = an_object("k", 10)
    fill(tier, obj)
    cell = cells.open(obj)
    cell.close()
    cell.close()


READER = """
import random, sys, time
from cache_engine.errors import CorruptBlock
from cache_engine.local_cells import LocalCells
from tests.cache_engine.tier_kit import an_object
from tests.cache_engine.test_local_cells import MANY, whole
cells, rng = LocalCells(sys.argv[1]), random.Random(int(sys.argv[2]))
right = {obj: whole(obj) for obj in MANY}
hits = 0
print("ready", flush=True)
sys.stdin.readline()
while hits < 60:
    obj = rng.choice(MANY)
    if rng.random() < 0.5 and obj.size <= 1 << 20:
        found = cells.read_small(obj)
        assert found is None or found == right[obj], obj
        hits += found is not None
        continue
    cell = cells.open(obj)
    if cell is not None:
        with cell:
            for block in range(-(-obj.size // (1 << 20))):
                start, stop = block << 20, min(obj.size, (block + 1) << 20)
                if cell.has(start, stop):
                    buffer = bytearray(stop - start)
                    cell.readinto(memoryview(buffer), start)
                    assert buffer == right[obj][start:stop], (obj, block)
                    hits += 1
print(hits, flush=True)
"""

MANY = [an_object(f"many-{number}", size) for number in range(4) for size in (3000, 70_000, BLOCK + 1, 6 * BLOCK)]


def test_eight_processes_read_right_bytes_while_cells_come_and_go(tmp_path):
    """A tier too small for all, filled and evicted all the time; no reader sees a wrong byte, or an error."""
    with closing(DiskTier(tmp_path, 10 * BLOCK, boot_id=BOOT)) as tier, ExitStack() as stack:
        readers = [stack.enter_context(child(READER, tmp_path, seed)) for seed in range(8)]
        assert [line_of(reader) for reader in readers] == ["ready"] * 8
        for reader in readers:
            reader.stdin.write("go\n")
            reader.stdin.flush()
        rng = random.Random(1)
        while any(reader.poll() is None for reader in readers):
            fill(tier, rng.choice(MANY))
            assert disk_bytes(tmp_path) <= tier.quota
        assert [reader.returncode for reader in readers] == [0] * 8
        assert all(int(line_of(reader)) >= 60 for reader in readers)
        assert tier.stats().counts["evicted"] > 0
        for obj in MANY:
            held_blocks(tier, obj)
            tier.drop(obj)
        tier.tidy()
        assert tier.used == 0
