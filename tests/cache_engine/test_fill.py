"""Fetches into cells: what a bad stream does, what a stop in the middle leaves, and how soon a worker ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from cache_engine.block import BLOCK, ObjectId
from cache_engine.errors import CacheEngineError, ObjectChanged, SourceUnavailable, WorkerUnavailable
from cache_engine.fill import Filler, NoRoom, block_crcs, read_past
from cache_engine.metrics import WorkerMetrics
from cache_engine.source import Stream
from cache_engine.tier import DiskTier
from tests.cache_engine.plane import Plane, noise
from tests.cache_engine.tier_kit import ROOT, an_object, held_blocks
from tests.cache_engine.tier_kit import body as right

Before = Callable[[int], None]


class Scripted:
    """An origin with the right bytes; `before(block)` runs before each of them. `short`: the last block's loss."""

    def __init__(self, before: Before = lambda block: None, short: int = 0) -> None:
        self.before = before
        self.short = short
        self.asked: list[tuple[int, int]] = []

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        self.asked.append((start, stop))
        return _Bytes(self, obj, start, stop - self.short)


class _Bytes:
    def __init__(self, origin: Scripted, obj: ObjectId, start: int, stop: int) -> None:
        self._origin, self._obj, self._at, self._stop = origin, obj, start, stop

    def readinto(self, buffer: memoryview) -> int:
        block = self._at // BLOCK
        self._origin.before(block)
        piece = right(self._obj, block)[: min(len(buffer), self._stop - self._at)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        pass


@pytest.fixture
def tier(tmp_path: Path):
    tier = DiskTier(tmp_path / "tier", 64 * BLOCK, boot_id="b")
    yield tier
    tier.close()


@pytest.fixture
def filler(tier: DiskTier):
    filler = Filler(tier, 4, WorkerMetrics())
    yield filler
    filler.close()


def fill(filler: Filler, obj: ObjectId, blocks: range, origin: Scripted) -> list[CacheEngineError | None]:
    with filler.tier.lease(obj, label="uid") as lease:
        return [future.exception(30) for future in filler.ensure(lease, blocks, origin, "uid", False)]  # type: ignore[misc]


def test_runs_of_sixteen_blocks_are_fetched_and_vouched_for(filler: Filler) -> None:
    obj, origin = an_object("k", 40 * BLOCK + 5), Scripted()
    assert fill(filler, obj, range(41), origin) == [None] * 3
    assert sorted(origin.asked) == [(0, 16 * BLOCK), (16 * BLOCK, 32 * BLOCK), (32 * BLOCK, obj.size)]
    assert held_blocks(filler.tier, obj) == list(range(41))


@pytest.mark.parametrize("short", [1, BLOCK - 1])
def test_a_stream_that_ends_early_never_makes_a_block(filler: Filler, short: int) -> None:
    obj = an_object("k", 3 * BLOCK)
    (error,) = fill(filler, obj, range(3), Scripted(short=short))
    assert isinstance(error, SourceUnavailable)
    assert held_blocks(filler.tier, obj) == [0, 1]
    with pytest.raises(SourceUnavailable):
        read_past(Scripted(short=short), obj, 0, obj.size)


@pytest.mark.parametrize(
    "error", [ObjectChanged("other"), SourceUnavailable("down"), OSError("disk"), ValueError("bug")]
)
def test_a_fetch_that_fails_keeps_what_came_gives_up_the_rest_and_can_be_tried_again(
    filler: Filler, error: Exception
) -> None:
    def before(block: int) -> None:
        if block == 2:
            raise error

    obj = an_object("k", 5 * BLOCK)
    (seen,) = fill(filler, obj, range(5), Scripted(before))
    expected = (
        NoRoom if type(error) is OSError else type(error) if isinstance(error, CacheEngineError) else SourceUnavailable
    )
    assert isinstance(seen, expected)
    assert held_blocks(filler.tier, obj) == [0, 1] and filler.tier.held("uid") == 2 * BLOCK
    origin = Scripted()
    assert fill(filler, obj, range(5), origin) == [None]
    assert origin.asked == [(2 * BLOCK, 5 * BLOCK)] and len(filler.flights) == 0


def test_no_room_is_said_to_all_who_wait_and_takes_none(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "tier", 4 * BLOCK, boot_id="b")
    filler = Filler(tier, 2, WorkerMetrics())
    obj = an_object("k", 10 * BLOCK)
    (error,) = fill(filler, obj, range(10), Scripted())
    assert isinstance(error, NoRoom) and tier.used <= tier.quota
    filler.close()
    tier.close()


def test_a_closed_filler_refuses_and_frees_whoever_waits(tier: DiskTier) -> None:
    filler = Filler(tier, 1, WorkerMetrics())
    go, started = threading.Event(), threading.Event()

    def before(block: int) -> None:
        started.set()
        go.wait(30)

    one, two = an_object("1", BLOCK), an_object("2", BLOCK)
    with tier.lease(one) as first, tier.lease(two) as second:
        (flying,) = filler.ensure(first, range(1), Scripted(before), "uid", False)
        (queued,) = filler.ensure(second, range(1), Scripted(before), "uid", False)
        started.wait(30)
        closer = threading.Thread(target=filler.close)
        closer.start()
        for waiting in (queued, flying):
            assert isinstance(waiting.exception(30), WorkerUnavailable), "it is not left waiting"
        go.set()
        closer.join(30)
        with pytest.raises(WorkerUnavailable):
            filler.ensure(second, range(1), Scripted(), "uid", False)


def test_bytes_past_the_cache_are_summed_by_block() -> None:
    obj = an_object("k", 2 * BLOCK + 7)
    whole = read_past(Scripted(), obj, 0, obj.size)
    assert whole == b"".join(right(obj, block) for block in range(3))
    assert block_crcs(whole) == [crc32c(right(obj, block)) for block in range(3)]
    assert read_past(Scripted(), obj, BLOCK, BLOCK) == b""


def test_a_worker_that_is_told_to_stop_while_its_source_hangs_ends_in_time_and_keeps_what_came(tmp_path: Path) -> None:
    body = noise(40 * BLOCK, 1)
    with Plane(tmp_path, {"f": body}) as plane:
        plane.workers[0].stop()
        config = plane.workers[0].config
        command = [sys.executable, "-m", "cache_engine.worker_process", "--id", "w0", "--control", config.control]
        command += ["--directory", config.directory, "--quota", str(config.quota), "--node", "n0", "--fetches", "1"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        beats = plane.control.beats("w0")
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            plane.workers[0].url = json.loads(process.stdout.readline())["url"]
            plane.control.await_report("w0", beats)
            plane.publish()
            with plane.client() as client:
                assert client.read("f", 0, BLOCK) == body[:BLOCK]
                plane.store.rule("delay", match="GET */f", seconds=120)
                reader = threading.Thread(target=_read_and_fail, args=(client,))
                reader.start()
                while not plane.control.await_report("w0")["used"] > 2 * BLOCK:
                    plane.beat(times=1)
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
                reader.join(30)
                assert not reader.is_alive()
        plane.store.clear_rules()
        plane.workers[0] = plane.start("w0")
        assert plane.workers[0].worker.tier.held("uid-d") == BLOCK
        plane.publish()
        with plane.client() as client:
            assert client.read("f") == body


def _read_and_fail(client) -> None:
    with pytest.raises(CacheEngineError):
        client.read("f")
