"""Blocks that are still coming: handed on as they land, vouched for at the end, and an honest error where they do not."""

from __future__ import annotations

import contextlib
import struct
import threading
from pathlib import Path

import pytest
from crc32c import crc32c

from cache_engine import wire
from cache_engine.block import BLOCK
from cache_engine.errors import ObjectChanged
from tests.cache_engine.plane import Plane, noise

SIZE = 5 * BLOCK + 7


def test_a_block_is_handed_on_before_the_next_one_has_left_the_source(tmp_path: Path) -> None:
    body = noise(SIZE, 1)
    let_go = threading.Event()

    def read(offset: int, count: int) -> bytes:
        if offset + count > 2 * BLOCK:
            assert let_go.wait(30)
        return body[offset : offset + count]

    with Plane(tmp_path, {"other": b"x"}) as plane:
        plane.store.put("data/f", (SIZE, read))
        plane.publish(plane.control.access("d"), snapshot=True)
        asked = [("range", f"bytes=0-{SIZE - 1}"), (wire.LATE_CRC, "1")]
        with contextlib.closing(plane.http()) as pool, pool.request("GET", plane.target("f"), asked) as response:
            assert (response.status, response.headers[wire.ORIGIN]) == (206, "fill")
            assert response.length == SIZE + 4 * 6
            first = bytearray(BLOCK)
            assert response.readinto(memoryview(first)) == BLOCK
            assert not let_go.is_set()
            assert first == body[:BLOCK]
            let_go.set()
            rest = response.read(SIZE)
        assert first + rest[: SIZE - BLOCK] == body
        crcs = struct.unpack("<6I", rest[SIZE - BLOCK :])
        assert list(crcs) == [crc32c(body[n * BLOCK : (n + 1) * BLOCK]) for n in range(6)]


def test_who_does_not_ask_for_late_sums_gets_them_in_front(tmp_path: Path) -> None:
    body = noise(SIZE, 2)
    with Plane(tmp_path, {"f": body}) as plane, contextlib.closing(plane.http()) as pool:
        with pool.request("GET", plane.target("f"), [("range", f"bytes=0-{SIZE - 1}")]) as response:
            assert wire.LATE_CRC not in response.headers
            assert len(response.headers[wire.CRC].split(",")) == 6
            assert response.read(SIZE) == body


def test_blocks_that_are_held_come_with_their_sums_in_front_even_if_late_ones_were_fine(tmp_path: Path) -> None:
    body = noise(SIZE, 3)
    with Plane(tmp_path, {"f": body}) as plane, contextlib.closing(plane.http()) as pool:
        asked = [("range", f"bytes=0-{SIZE - 1}"), (wire.LATE_CRC, "1")]
        for late in (True, False):
            with pool.request("GET", plane.target("f"), asked) as response:
                assert (wire.LATE_CRC in response.headers) == late
                assert response.read(2 * SIZE)[:SIZE] == body


def test_an_object_that_changes_while_its_blocks_go_out_is_that_error_and_no_lost_worker(tmp_path: Path) -> None:
    old, new = noise(20 * BLOCK, 4), noise(20 * BLOCK, 5)
    with Plane(tmp_path, {"f": old}, fetches=1) as plane, plane.client(connections=1) as client:
        plane.store.rule("replace_after", match="GET */data/f", times=1, new=new)
        with pytest.raises(ObjectChanged, match="f"):
            client.read("f")
        assert client.stats().bytes["source"] == 0
        assert client.read("f", 0, BLOCK) == old[:BLOCK], "what landed of the old version stays right"


@pytest.mark.parametrize("at", [0, 3 * BLOCK + 5, SIZE - 1])
def test_a_byte_that_is_damaged_on_the_way_from_the_source_is_vouched_for_as_it_came(tmp_path: Path, at: int) -> None:
    """Nobody can know better: the source sent it so. But what the worker sends is what it holds."""
    body = noise(SIZE, 6)
    with Plane(tmp_path, {"f": body}) as plane, plane.client(connections=1) as client:
        plane.store.rule("corrupt", match="GET */data/f", times=1, at=at)
        first = client.read("f")
        assert first == client.read("f")
        assert sum(a != b for a, b in zip(first, body, strict=True)) <= 1
