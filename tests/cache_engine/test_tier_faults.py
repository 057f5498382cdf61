"""The disk fails, fills up or disappears under a running tier: nobody but the counters notices."""

import os
import shutil
import tempfile

import pytest

from cache_engine.block import BLOCK
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
    voucher_path,
)

QUOTA = 64 * BLOCK


@pytest.fixture
def tier(tmp_path):
    tier = DiskTier(tmp_path / "cache", QUOTA, boot_id=BOOT)
    yield tier
    tier.close()


def objects(count):
    return [an_object(f"object-{number}", 3000) for number in range(count)]


@pytest.mark.case("B22")
def test_the_whole_folder_is_removed_and_made_again(tier, tmp_path):
    for obj in objects(30):
        fill(tier, obj, label="uid")
    shutil.rmtree(tmp_path / "cache")
    assert held_blocks(tier, objects(30)[0]) == []
    new = an_object("new", 5000)
    assert fill(tier, new, label="uid")
    assert held_blocks(tier, new) == [0]
    assert tier.held("uid") == 5000
    assert disk_bytes(tmp_path / "cache") == tier.used
    assert (tmp_path / "cache" / "lock").exists()
    for obj in objects(30):
        assert fill(tier, obj)


@pytest.mark.case("B22")
def test_one_sub_folder_is_removed(tier, tmp_path):
    for obj in objects(30):
        fill(tier, obj)
    lost = objects(30)[3]
    shutil.rmtree(cell_path(tmp_path / "cache", lost).parent)
    assert held_blocks(tier, lost) == []
    assert fill(tier, lost)
    assert held_blocks(tier, lost) == [0]
    assert len([obj for obj in objects(30) if held_blocks(tier, obj)]) >= 25
    assert disk_bytes(tmp_path / "cache") == tier.used


@pytest.mark.case("B22")
def test_a_reader_reads_on_while_the_folder_is_removed_under_it(tier, tmp_path):
    obj = an_object("k", 3 * BLOCK)
    fill(tier, obj)
    with tier.lease(obj) as lease:
        shutil.rmtree(tmp_path / "cache")
        assert lease.ready(range(3))
        assert os.pread(lease.fd, BLOCK, BLOCK) == body(obj, 1)
    assert fill(tier, an_object("new", 100))
    assert tier.used == disk_bytes(tmp_path / "cache")


@pytest.mark.case("B22")
def test_a_folder_that_cannot_be_made_again_is_read_past(tier, tmp_path):
    fill(tier, an_object("old", 1000))
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file in its place")
    assert not fill(tier, an_object("new", 1000))
    assert held_blocks(tier, an_object("old", 1000)) == []
    assert tier.stats().not_caching != ""
    (tmp_path / "cache").unlink()
    assert fill(tier, an_object("new", 1000))
    assert tier.stats().not_caching == ""


FORBIDDEN = """
import os, sys
from pathlib import Path
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import an_object, fill, held_blocks
if os.geteuid() == 0:
    os.setuid(65534)
place = Path(sys.argv[1])
tier = DiskTier(place / "cache", 1 << 26, boot_id="b")
old = an_object("old", 1000)
print(fill(tier, old), held_blocks(tier, old))
(place / "cache").chmod(0)
print(fill(tier, an_object("new", 1000)), held_blocks(tier, old), "denied" in tier.stats().not_caching)
(place / "cache").chmod(0o755)
print(fill(tier, an_object("new", 1000)), held_blocks(tier, old), flush=True)
"""


@pytest.mark.case("B22")
def test_a_folder_that_may_not_be_entered_is_read_past():
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        with child(FORBIDDEN, place) as process:
            assert [line_of(process) for _ in range(3)] == ["True [0]", "False [] True", "True [0]"]


def test_a_missing_cell_or_voucher_alone_is_no_error(tier, tmp_path):
    first, second = objects(2)
    fill(tier, first)
    fill(tier, second)
    cell_path(tmp_path / "cache", first).unlink()
    voucher_path(tmp_path / "cache", second).unlink()
    assert held_blocks(tier, first) == []
    assert held_blocks(tier, second) == [0]
    tier.drop(second)
    assert tier.used == disk_bytes(tmp_path / "cache") == 0


def test_a_leftover_under_a_cells_name_is_never_written_over(tier, tmp_path):
    obj = an_object("k", 1000)
    path = cell_path(tmp_path / "cache", obj)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"somebody may have this open")
    with open(path, "rb") as reader:
        assert fill(tier, obj)
        assert reader.read() == b"somebody may have this open"
    assert held_blocks(tier, obj) == [0]


@pytest.mark.case("B08")
def test_a_disk_that_is_full_before_the_quota_is_costs_no_error(small_disk):
    """16 MiB of disk under a quota of 1 GiB: older cells leave once, then reads go past the cache."""
    tier = DiskTier(small_disk / "cache", 1 << 30, boot_id=BOOT)
    cells = [an_object(str(number), 2 * BLOCK) for number in range(16)]
    for obj in cells:
        fill(tier, obj)
    assert held_blocks(tier, cells[-1]) == [0, 1]
    assert held_blocks(tier, cells[0]) == []
    assert tier.stats().counts["disk_errors"] > 0
    assert disk_bytes(small_disk / "cache") <= tier.used
    leases = [tier.lease(obj) for obj in cells]
    assert not fill(tier, an_object("no room", 8 * BLOCK))
    assert "No space left" in tier.stats().not_caching
    for lease in leases:
        lease.close()
    assert fill(tier, an_object("no room", 8 * BLOCK))
    assert tier.stats().not_caching == ""
    tier.close()


@pytest.mark.case("B21")
def test_hundreds_of_leases_leave_no_descriptor(tmp_path):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    for round_ in range(2):
        tier = DiskTier(tmp_path / str(round_), 6 * BLOCK, boot_id=BOOT)
        for number in range(200):
            fill(tier, an_object(str(number), 40_000))
            tier.lease(an_object(str(number // 2), 40_000)).close()
        for number in range(4):
            tier.drop(an_object(str(199 - number), 40_000))
        assert open_files() <= before + 2  # the lock, and the listing itself
        tier.close()
    assert open_files() == before
