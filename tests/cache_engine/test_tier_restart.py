"""What is there again after a stop, clean or not, and what damage on the disk does: nothing but "not cached"."""

import os
import random
import shutil

import pytest
from crc32c import crc32c

from cache_engine.block import BLOCK
from cache_engine.tier import DiskTier
from cache_engine.voucher import decode
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
    put,
    voucher_path,
)

QUOTA = 64 * BLOCK


def opened(directory, boot=BOOT, quota=QUOTA):
    return DiskTier(directory, quota, boot_id=boot)


def stopped_uncleanly(directory, *objects):
    """A directory with those objects, without a clean mark."""
    tier = opened(directory)
    for obj in objects:
        fill(tier, obj, label="uid")
    tier.close()
    (directory / "clean").unlink()


def test_after_a_clean_stop_everything_is_ready_at_once(tmp_path):
    one, part, near = an_object("one", 1000), an_object("part", 3 * BLOCK), an_object("near", 5000)
    tier = opened(tmp_path)
    fill(tier, one, label="a")
    fill(tier, part, [1], label="b")
    fill(tier, near, label="b", near=True)
    used = tier.used
    tier.close()
    tier = opened(tmp_path)
    assert tier.used == used
    with tier.lease(one) as lease:
        assert lease.ready(range(1))
    with tier.lease(part) as lease:
        assert lease.ready(range(1, 2))
        assert not lease.ready(range(2))
    assert (tier.held("a"), tier.held("b"), tier.held("b", near=True)) == (1000, BLOCK, 5000)
    tier.close()


def test_labels_that_came_after_the_voucher_are_saved_at_a_clean_stop(tmp_path):
    obj = an_object("k", 1000)
    tier = opened(tmp_path)
    fill(tier, obj, label="a")
    tier.lease(obj, label="b").close()
    tier.close()
    tier = opened(tmp_path)
    assert (tier.held("a"), tier.held("b")) == (1000, 1000)
    tier.close()


@pytest.mark.parametrize("boot", [BOOT, "another boot"])
def test_after_an_unclean_stop_or_a_reboot_nothing_is_ready_until_its_crc_was_compared(tmp_path, boot):
    obj = an_object("k", 2 * BLOCK)
    tier = opened(tmp_path)
    fill(tier, obj)
    tier.close()
    if boot == BOOT:
        (tmp_path / "clean").unlink()
    tier = opened(tmp_path, boot)
    with tier.lease(obj) as lease:
        assert not lease.ready(range(1))
        assert not lease.complete
        assert lease.missing([1]) == []
        assert lease.ready(range(1, 2))
        assert not lease.ready(range(2))
    tier.close()


def test_a_clean_stop_does_not_vouch_for_what_nobody_compared(tmp_path):
    read, unread = an_object("read", 1000), an_object("unread", 2000)
    stopped_uncleanly(tmp_path, read, unread)
    tier = opened(tmp_path)
    held_blocks(tier, read)
    tier.close()
    tier = opened(tmp_path)
    with tier.lease(read) as one, tier.lease(unread) as other:
        assert one.ready(range(1))
        assert not other.ready(range(1))
        assert other.missing([0]) == []
    tier.close()


def test_a_clean_mark_that_cannot_be_read_is_none(tmp_path):
    obj = an_object("k", 1000)
    stopped_uncleanly(tmp_path, obj)
    (tmp_path / "clean").write_bytes(b'{"boot": ')
    tier = opened(tmp_path)
    with tier.lease(obj) as lease:
        assert not lease.ready(range(1))
    tier.close()


@pytest.mark.case("B11")
@pytest.mark.parametrize("offset", [0, BLOCK + 77, -1])
def test_a_flipped_bit_in_a_cell_drops_its_block_alone(tmp_path, offset):
    obj = an_object("k", 2 * BLOCK)
    stopped_uncleanly(tmp_path, obj)
    flip_bit(cell_path(tmp_path, obj), offset)
    tier = opened(tmp_path)
    bad = 0 if offset == 0 else 1
    assert held_blocks(tier, obj) == [1 - bad]
    assert tier.stats().counts["bad_blocks"] == 1
    assert fill(tier, obj, label="uid")
    assert held_blocks(tier, obj) == [0, 1]
    assert tier.held("uid") == 2 * BLOCK
    tier.close()


@pytest.mark.case("B11")
def test_a_flipped_bit_anywhere_in_a_voucher_makes_the_cell_not_cached(tmp_path):
    obj = an_object("k", 1000)
    stopped_uncleanly(tmp_path, obj)
    saved = tmp_path.with_name("saved")
    shutil.copytree(tmp_path, saved)
    for offset in range(0, os.path.getsize(voucher_path(tmp_path, obj)), 7):
        flip_bit(voucher_path(tmp_path, obj), offset)
        tier = opened(tmp_path)
        assert held_blocks(tier, obj) == []
        assert disk_bytes(tmp_path) == tier.used == 0
        tier.close()
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True)


@pytest.mark.case("B14")
@pytest.mark.parametrize("length", [0, 4999, 5001])
@pytest.mark.parametrize("running", [True, False])
def test_a_cell_of_a_wrong_length_is_removed_and_filled_again(tmp_path, length, running):
    obj = an_object("k", 5000)
    tier = opened(tmp_path)
    fill(tier, obj, label="uid")
    if not running:
        tier.close()
    os.truncate(cell_path(tmp_path, obj), length)
    if not running:
        tier = opened(tmp_path)
    assert held_blocks(tier, obj) == []
    assert disk_bytes(tmp_path) == tier.used == tier.held("uid") == 0
    assert fill(tier, obj)
    assert held_blocks(tier, obj) == [0]
    tier.close()


def test_a_cell_under_anothers_name_is_not_cached(tmp_path):
    right, wrong = an_object("right", 5000), an_object("wrong", 5000)
    stopped_uncleanly(tmp_path, right)
    cell_path(tmp_path, wrong).parent.mkdir(exist_ok=True)
    cell_path(tmp_path, right).rename(cell_path(tmp_path, wrong))
    voucher_path(tmp_path, right).rename(voucher_path(tmp_path, wrong))
    tier = opened(tmp_path)
    assert held_blocks(tier, right) == held_blocks(tier, wrong) == []
    assert disk_bytes(tmp_path) == tier.used == 0
    tier.close()


def test_another_format_version_is_removed_and_not_counted(tmp_path):
    obj = an_object("k", 5000)
    stopped_uncleanly(tmp_path, obj)
    raw = bytearray(voucher_path(tmp_path, obj).read_bytes())
    raw[4] = 2
    voucher_path(tmp_path, obj).write_bytes(raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little"))
    tier = opened(tmp_path)
    assert held_blocks(tier, obj) == []
    assert disk_bytes(tmp_path) == tier.used == 0
    tier.close()


def test_leftovers_are_removed_and_what_is_not_ours_is_left_alone(tmp_path):
    kept, bare = an_object("kept", 1000), an_object("bare", 1000)
    stopped_uncleanly(tmp_path, kept)
    cell_path(tmp_path, bare).parent.mkdir(exist_ok=True)
    cell_path(tmp_path, bare).write_bytes(bytes(1000))
    orphan = an_object("orphan", 1000)
    voucher_path(tmp_path, orphan).parent.mkdir(exist_ok=True)
    voucher_path(tmp_path, kept).with_name(voucher_path(tmp_path, kept).name + ".tmp").write_bytes(b"half")
    shutil.copy(voucher_path(tmp_path, kept), voucher_path(tmp_path, orphan))
    stranger = cell_path(tmp_path, kept).with_name("notes.txt")
    stranger.write_text("mine")
    tier = opened(tmp_path)
    assert held_blocks(tier, kept) == [0]
    names = {name for _, _, files in os.walk(tmp_path / "cells") for name in files}
    assert names == {kept.cell_name, f"{kept.cell_name}.voucher", "notes.txt"}
    tier.close()


def test_a_smaller_quota_is_reached_at_start(tmp_path):
    objects = [an_object(str(number), BLOCK) for number in range(8)]
    tier = opened(tmp_path)
    for obj in objects:
        fill(tier, obj)
    tier.close()
    tier = opened(tmp_path, quota=3 * BLOCK)
    assert disk_bytes(tmp_path) <= tier.used <= 3 * BLOCK
    assert sum(bool(held_blocks(tier, obj)) for obj in objects) == 2
    tier.close()


@pytest.mark.case("B02")
def test_a_half_filled_cell_after_kill_minus_nine_holds_only_what_was_vouched_for(tmp_path):
    obj = an_object("k", 3 * BLOCK)
    code = """
import sys
from pathlib import Path
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import an_object, body, put
obj = an_object("k", 3 << 20)
lease = DiskTier(Path(sys.argv[1]), 64 << 20, boot_id=sys.argv[2]).lease(obj)
put(lease, obj, 0)
lease.vouch()
put(lease, obj, 1)
lease.reserve([2])
print("half", flush=True)
sys.stdin.read()
"""
    with child(code, tmp_path, BOOT) as writer:
        assert line_of(writer) == "half"
        writer.kill()
        writer.wait()
    assert disk_bytes(tmp_path) > 2 * BLOCK
    tier = opened(tmp_path)
    assert disk_bytes(tmp_path) <= tier.used < 2 * BLOCK
    assert held_blocks(tier, obj) == [0]
    assert fill(tier, obj)
    assert held_blocks(tier, obj) == [0, 1, 2]
    tier.close()


STORM = """
import random, sys, threading
from pathlib import Path
from cache_engine.block import BLOCK
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import an_object, fill
tier = DiskTier(Path(sys.argv[1]), 10 * BLOCK, boot_id=sys.argv[2])
def work(seed):
    rng = random.Random(seed)
    while True:
        obj = an_object(str(rng.randrange(30)), rng.choice([700, 9000, BLOCK, 2 * BLOCK + 1, 6 * BLOCK]))
        fill(tier, obj, label="uid")
        print(obj.key.decode(), obj.size, flush=True)
for seed in range(4):
    threading.Thread(target=work, args=(int(sys.argv[3]) * 10 + seed,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("seed", range(3))
def test_kill_minus_nine_in_a_storm_of_writes_leaves_no_wrong_byte(tmp_path, seed):
    written = set()
    with child(STORM, tmp_path, BOOT, seed) as storm:
        for _ in range(random.Random(seed).randrange(20, 60)):
            written.add(line_of(storm))
        storm.kill()
        storm.wait()
    tier = opened(tmp_path, quota=10 * BLOCK)
    assert disk_bytes(tmp_path) <= tier.used <= tier.quota
    found = dict(tier.objects("uid"))
    assert sum(found.values()) == tier.held("uid")
    for obj in found:
        assert held_blocks(tier, obj)
    assert tier.stats().counts["bad_blocks"] == 0
    names = [name for _, _, files in os.walk(tmp_path / "cells") for name in files]
    assert sorted(names) == sorted(name for obj in found for name in (obj.cell_name, f"{obj.cell_name}.voucher"))
    for obj in found:
        raw = voucher_path(tmp_path, obj).read_bytes()
        assert decode(raw, obj.cell_name).obj == obj
    for obj in found:
        assert fill(tier, obj)
        with tier.lease(obj) as lease:
            assert os.pread(lease.fd, 1, 0) == bytes(body(obj, 0)[:1])
    tier.close()


def test_a_lease_that_outlives_its_tier_reads_on_and_writes_nothing(tmp_path):
    obj, late = an_object("k", 2 * BLOCK), an_object("late", 1000)
    first = opened(tmp_path)
    fill(first, obj, [0])
    lease = first.lease(obj)
    first.close()
    second = opened(tmp_path)
    used = second.used
    assert os.pread(lease.fd, BLOCK, 0) == body(obj, 0)
    if put(lease, obj, 1):
        lease.vouch()
    assert not fill(first, late)
    lease.close()
    assert held_blocks(second, obj) == [0]
    assert second.used == used
    assert decode(voucher_path(tmp_path, obj).read_bytes(), obj.cell_name).present == b"\x01\x00"
    second.close()
