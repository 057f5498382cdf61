import os
import threading

import pytest
from crc32c import crc32c

from cache_engine.block import BLOCK
from cache_engine.errors import InvalidValue
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
    voucher_path,
)

QUOTA = 64 * BLOCK


@pytest.fixture
def tier(tmp_path):
    tier = DiskTier(tmp_path, QUOTA, boot_id=BOOT)
    yield tier
    tier.close()


@pytest.mark.parametrize("size", [1, PAGE, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_what_was_written_is_there_and_exactly_as_long(tier, tmp_path, size):
    obj = an_object("k", size)
    assert fill(tier, obj)
    assert held_blocks(tier, obj) == list(range(-(-size // BLOCK)))
    assert os.path.getsize(cell_path(tmp_path, obj)) == size
    with tier.lease(obj) as lease:
        assert lease.complete
        assert lease.ready(range(1))
        assert lease.crcs([0]) == [crc32c(body(obj, 0))]


def test_an_object_of_no_bytes_is_always_complete(tier, tmp_path):
    with tier.lease(an_object("empty", 0), label="uid") as lease:
        assert lease.complete
        assert lease.ready(range(0))
        assert lease.missing(range(0)) == []
        assert lease.reserve([])
        lease.vouch()
    assert disk_bytes(tmp_path) == tier.used == 0
    assert tier.held("uid") == 0


def test_a_lease_on_nothing_touches_no_disk_and_leaves_no_trace(tier, tmp_path):
    with tier.lease(an_object("k", 5)) as lease:
        assert lease.fd == -1
        assert not lease.ready(range(1))
        assert lease.missing([0]) == [0]
    assert tier.stats().cells == 0
    assert not (tmp_path / "cells").exists()


def test_reserved_is_not_ready_and_cancelled_is_given_back(tier):
    obj = an_object("k", 4 * BLOCK)
    with tier.lease(obj) as lease:
        assert lease.reserve([0, 1])
        assert not lease.ready(range(1))
        used = tier.used
        lease.cancel([1])
        assert tier.used == used - BLOCK
        assert not lease.write(1, body(obj, 1), 0)
        assert lease.write(0, body(obj, 0), crc32c(body(obj, 0)))
        assert lease.ready(range(1))
    assert held_blocks(tier, obj) == [0]


def test_a_lease_that_closes_gives_up_what_it_reserved(tier):
    obj = an_object("k", 4 * BLOCK)
    with tier.lease(obj) as lease:
        assert lease.reserve([0, 1, 2, 3])
    with tier.lease(obj) as lease:
        assert lease.missing(range(4)) == [0, 1, 2, 3]
    assert tier.used <= 2 * PAGE


def test_only_whole_blocks_are_written(tier):
    obj = an_object("k", BLOCK + 10)
    with tier.lease(obj) as lease:
        assert lease.reserve([1])
        with pytest.raises(InvalidValue, match="block 1 has 10 bytes, not 9"):
            lease.write(1, memoryview(bytes(9)), 0)


def test_the_voucher_comes_only_when_asked_for(tier, tmp_path):
    obj = an_object("k", BLOCK)
    with tier.lease(obj) as lease:
        assert put(lease, obj, 0)
        assert not voucher_path(tmp_path, obj).exists()
        assert LocalCells(tmp_path).read_small(obj) is None
        lease.vouch()
        assert LocalCells(tmp_path).read_small(obj) == body(obj, 0)


def test_a_discarded_block_is_missing_counted_and_can_be_written_again(tier, tmp_path):
    obj = an_object("k", 2 * BLOCK)
    fill(tier, obj)
    with tier.lease(obj) as lease:
        lease.discard(1)
        lease.discard(1)
        assert not lease.ready(range(2))
        assert lease.missing(range(2)) == [1]
        assert tier.stats().counts["bad_blocks"] == 1
        used = tier.used
        assert put(lease, obj, 1)
        assert tier.used == used
        lease.vouch()
    assert held_blocks(tier, obj) == [0, 1]


def test_a_rumour_of_a_bad_block_is_checked_before_it_is_dropped(tier, tmp_path):
    obj = an_object("k", BLOCK)
    fill(tier, obj)
    with tier.lease(obj) as lease:
        assert lease.recheck(0)
        with open(cell_path(tmp_path, obj), "r+b") as file:
            file.write(b"not what was written")
        assert not lease.recheck(0)
        assert lease.missing([0]) == [0]


def test_bytes_are_charged_to_every_label_exactly(tier):
    small, large = an_object("small", 1000), an_object("large", 2 * BLOCK + 5)
    fill(tier, small, label="one")
    fill(tier, large, [0, 2], label="one")
    assert tier.held("one") == 1000 + BLOCK + 5
    with tier.lease(large, label="two"):
        assert tier.held("two") == BLOCK + 5
    fill(tier, large, label="two")
    assert tier.held("one") == 1000 + 2 * BLOCK + 5
    assert sorted(size for _, size in tier.objects("one")) == [1000, 2 * BLOCK + 5]
    assert dict(tier.objects("two")) == {large: 2 * BLOCK + 5}
    assert tier.held("three") == 0


def test_dropping_a_label_keeps_what_another_one_shares(tier, tmp_path):
    mine, shared = an_object("mine", 1000), an_object("shared", 2000)
    fill(tier, mine, label="one")
    fill(tier, shared, label="one")
    fill(tier, shared, label="two")
    tier.drop_label("one")
    assert tier.held("one") == 0
    assert tier.held("two") == 2000
    assert not cell_path(tmp_path, mine).exists()
    assert held_blocks(tier, shared) == [0]
    tier.drop_label("two")
    tier.drop_label("")
    assert disk_bytes(tmp_path) == tier.used == 0


def test_a_near_copy_leased_as_owned_becomes_owned_and_never_near_again(tier):
    obj = an_object("k", 1000)
    fill(tier, obj, label="uid", near=True)
    assert (tier.held("uid"), tier.held("uid", near=True), tier.stats().near) == (0, 1000, 1000)
    with tier.lease(obj, label="uid"):
        assert (tier.held("uid"), tier.held("uid", near=True), tier.stats().near) == (1000, 0, 0)
    with tier.lease(obj, label="uid", near=True):
        assert (tier.held("uid"), tier.stats().near) == (1000, 0)


def test_a_dropped_cell_is_read_on_and_charged_until_its_last_lease_goes(tier, tmp_path):
    obj = an_object("k", 3 * BLOCK)
    fill(tier, obj)
    lease = tier.lease(obj)
    assert lease.ready(range(3))
    used = tier.used
    tier.drop(obj)
    assert not cell_path(tmp_path, obj).exists()
    assert tier.used == used
    assert os.pread(lease.fd, BLOCK, 2 * BLOCK) == body(obj, 2)
    assert not lease.reserve([0])
    assert fill(tier, obj)
    lease.close()
    assert tier.used == used
    assert held_blocks(tier, obj) == [0, 1, 2]


def test_two_versions_of_a_key_are_two_cells(tier):
    old, new = an_object("k", 1000, 'etag:"1"'), an_object("k", 1000, 'etag:"2"')
    fill(tier, old)
    assert held_blocks(tier, new) == []
    fill(tier, new)
    assert held_blocks(tier, old) == held_blocks(tier, new) == [0]


def test_many_threads_on_one_cell_write_every_block_once(tier):
    obj = an_object("k", 40 * BLOCK)
    bodies = [body(obj, block) for block in range(40)]

    def work(first):
        with tier.lease(obj, label="uid") as lease:
            for number in range(40):
                block = (first + number) % 40
                if lease.missing([block]) and lease.reserve([block]):
                    assert lease.write(block, bodies[block], crc32c(bodies[block]))
                    lease.vouch()

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 7, 20, 33)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held_blocks(tier, obj) == list(range(40))
    assert tier.held("uid") == 40 * BLOCK


OWNER = """
import sys
from cache_engine.tier import DiskTier
tier = DiskTier(sys.argv[1], 1 << 30, boot_id="b")
print("owned", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_in_one_sentence_that_names_the_first(tmp_path):
    with child(OWNER, tmp_path) as owner:
        assert line_of(owner) == "owned"
        with pytest.raises(InvalidValue, match=rf"belongs to process {owner.pid} \(.*python.*stop that process or"):
            DiskTier(tmp_path, QUOTA, boot_id=BOOT)
        owner.kill()
        owner.wait()
    DiskTier(tmp_path, QUOTA, boot_id=BOOT).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidValue, match="cannot be a cache directory"):
        DiskTier(tmp_path / "file" / "cache", QUOTA, boot_id=BOOT)


def test_reprs_are_state_lines(tier):
    obj = an_object("k", 2 * BLOCK)
    fill(tier, obj)
    with tier.lease(obj) as lease:
        assert "2/2 blocks, 2 proved" in repr(lease)
    assert "1 cells" in repr(tier)
