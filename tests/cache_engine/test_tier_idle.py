"""Files of cells that stay open between leases: bounded, never in the way of eviction, and never trusted blindly."""

import os
import shutil

import pytest

from cache_engine.block import BLOCK
from cache_engine.tier import DiskTier
from tests.cache_engine.tier_kit import BOOT, an_object, cell_path, disk_bytes, fill, held_blocks

QUOTA = 16 * BLOCK
IDLE = 4


@pytest.fixture
def tier(tmp_path):
    tier = DiskTier(tmp_path, QUOTA, boot_id=BOOT, idle_files=IDLE)
    yield tier
    tier.close()


def open_cells(directory):
    """Cells that this process has open, by name; a nameless one ends with (deleted)."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if f"{directory}/cells/" in link)


def test_as_many_files_stay_open_as_were_asked_for_and_none_after_close(tier, tmp_path):
    objects = [an_object(f"k{n}", 1000) for n in range(10)]
    for obj in objects:
        assert fill(tier, obj)
    assert len(open_cells(tmp_path)) == IDLE
    with tier.lease(objects[9]) as one, tier.lease(objects[9]) as other:
        assert one.fd == other.fd >= 0
    for obj in objects:
        with tier.lease(obj) as lease:
            assert lease.ready(range(1))
    assert len(open_cells(tmp_path)) == IDLE
    tier.close()
    assert open_cells(tmp_path) == []


def test_an_idle_file_is_evicted_like_any_other_and_its_bytes_are_free(tier, tmp_path):
    for n in range(100):
        assert fill(tier, an_object(f"k{n}", BLOCK))
        assert tier.used <= QUOTA
        assert disk_bytes(tmp_path) <= QUOTA
    assert tier.stats().lingering == 0
    assert not [link for link in open_cells(tmp_path) if link.endswith("(deleted)")]


@pytest.mark.parametrize("harm", ["unlinked", "cut", "longer", "the whole folder removed"])
def test_an_idle_file_that_somebody_harmed_is_not_used_again(tier, tmp_path, harm):
    obj = an_object("k", BLOCK)
    assert fill(tier, obj)
    path = cell_path(tmp_path, obj)
    if harm == "unlinked":
        os.unlink(path)
    elif harm == "the whole folder removed":
        shutil.rmtree(os.path.join(tmp_path, "cells"))
    else:
        os.truncate(path, BLOCK - 1 if harm == "cut" else BLOCK + 1)
    assert held_blocks(tier, obj) == []
    assert tier.stats().counts["lost_cells"] == 1
    assert tier.used == 0
    assert fill(tier, obj)
    assert held_blocks(tier, obj) == [0]


def test_a_cell_dropped_while_idle_leaves_nothing(tier, tmp_path):
    obj = an_object("k", BLOCK)
    assert fill(tier, obj)
    tier.drop(obj)
    assert (tier.used, open_cells(tmp_path)) == (0, [])
