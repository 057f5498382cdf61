"""What a worker says is what the asker hears: every error class, Retry-After, request ids, bytes checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from cache_engine import errors, wire
from cache_engine.access import Member
from cache_engine.block import BLOCK
from cache_engine.errors import CacheEngineError, InvalidValue, SourceThrottled, WorkerUnavailable
from cache_engine.fill import NoRoom
from cache_engine.http1 import Timeouts
from cache_engine.peers import BadBlock, Peer
from cache_engine.server import _refusal
from tests.cache_engine.plane import Plane, noise
from tests.cache_engine.wire_server import RESET, WireServer, ok

QUICK = Timeouts(1.0, 5.0, 5.0)


def peer(server: WireServer) -> Peer:
    return Peer(Member("w9", server.url, "n", "/nowhere"), QUICK)


@pytest.mark.parametrize("kind", wire.STATUS)
def test_each_error_class_arrives_as_it_left(kind: type[CacheEngineError]) -> None:
    refusal = _refusal(kind("because"))
    assert refusal.status == wire.STATUS[kind]
    head = f"{wire.ERROR}: {refusal.headers[wire.ERROR]}"
    with WireServer(lambda _: [ok(refusal.body, head, status=f"{refusal.status} No")]) as server:
        with pytest.raises(kind, match="because") as caught:
            peer(server).get("/x", memoryview(bytearray(1)), 0)
    assert type(caught.value) is kind


def test_an_error_of_a_narrower_class_arrives_as_the_nearest_that_both_ends_know() -> None:
    assert _refusal(BadBlock("b", 3)).headers[wire.ERROR] == "CorruptBlock"
    assert wire.status_of(BadBlock("b", 3)) == 500
    assert wire.status_of(NoRoom("full")) == 500
    assert isinstance(wire.error_named("NoRoom", 500, "full"), WorkerUnavailable)


@pytest.mark.parametrize("given, heard", [(7.4, 7.0), (0.2, 1.0), (None, None)])
def test_the_seconds_to_wait_travel_with_a_throttled_source(given: float | None, heard: float | None) -> None:
    refusal = _refusal(SourceThrottled("slow down", given))
    heads = [f"{name}: {value}" for name, value in refusal.headers.items() if name != "Content-Length"]
    with WireServer(lambda _: [ok(b"slow down", *heads, status="502 No")]) as server:
        with pytest.raises(SourceThrottled) as caught:
            peer(server).get("/x", memoryview(bytearray(1)), 0)
    assert caught.value.retry_after == heard


@pytest.mark.parametrize("later", ["soon", "", "-1", "1e400", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_time_to_wait_of_another_form_is_none(later: str) -> None:
    error = wire.error_named("SourceThrottled", 502, "slow", later)
    assert isinstance(error, SourceThrottled) and error.retry_after is None


def test_a_worker_that_hangs_up_is_unavailable_and_named() -> None:
    with WireServer(lambda _: [RESET]) as server, pytest.raises(WorkerUnavailable, match="w9"):
        peer(server).call("GET", "/v1/stats")


@pytest.mark.parametrize("body", [b"{", b"\xff", b""])
def test_an_answer_that_is_no_json_is_not_taken_for_one(body: bytes) -> None:
    with WireServer(lambda _: [ok(body)]) as server:
        if body:
            with pytest.raises(WorkerUnavailable, match="sensible"):
                peer(server).call("GET", "/v1/stats")
        else:
            assert peer(server).call("GET", "/v1/stats") is None


def test_a_block_with_another_crc_is_named_by_its_number() -> None:
    body = noise(3 * BLOCK, 1)
    crcs = [crc32c(body[n * BLOCK : (n + 1) * BLOCK]) for n in range(3)]
    crcs[2] ^= 1
    head = f"{wire.CRC}: {wire.format_crcs(crcs)}"
    with WireServer(lambda _: [ok(body, head, status="206 Partial Content")]) as server:
        with pytest.raises(BadBlock) as caught:
            peer(server).get("/x", memoryview(bytearray(3 * BLOCK)), 4 * BLOCK)
        assert caught.value.block == 6
        stream = peer(server).open("/x", 4 * BLOCK, 7 * BLOCK)
        view = memoryview(bytearray(BLOCK))
        assert [stream.readinto(view) for _ in range(2)] == [BLOCK, BLOCK]
        with pytest.raises(BadBlock):
            stream.readinto(view)
        stream.close()


def test_a_batch_table_that_promises_the_moon_is_not_believed() -> None:
    table = wire.pack_rows([wire.BatchRow(0, 0, 1 << 60)])
    with WireServer(lambda _: [ok(table)]) as server, pytest.raises((WorkerUnavailable, InvalidValue)):
        list(peer(server).batch("/v1/d/d/x", [0]))


def test_a_batch_that_ends_early_gives_what_came_and_then_an_error() -> None:
    rows = [wire.BatchRow(0, crc32c(b"abc"), 3), wire.BatchRow(404, 0, 2), wire.BatchRow(0, 1, 3)]
    with WireServer(lambda _: [ok(wire.pack_rows(rows) + b"abc" + b"no")]) as server:
        answers: Iterator = peer(server).batch("/v1/d/d/x", [0, 1, 2])
        assert next(answers)[0] == b"abc"
        assert isinstance(next(answers), errors.NotFound)
        with pytest.raises(WorkerUnavailable):
            next(answers)


def test_a_request_id_goes_with_the_fetch_to_the_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The reader's worker asks the owner under the reader's own id; told by the owner's log."""
    with Plane(tmp_path, {"f": b"x"}, ("a", "b")) as plane:
        with plane.client() as client:
            obj = client.manifest.object_id(0)
            owner = client.reader.membership.ring.owners(obj, 0, 1)[0]
        beside = next(n for n, worker in enumerate(plane.workers) if worker.config.id != owner)
        plane.store.rule("status", match="GET *", code=403)
        caplog.set_level("INFO", logger="forebay.worker")
        asked = [("range", "bytes=0-0"), (wire.REQUEST_ID, "id-77")]
        with plane.http(beside).request("GET", plane.target("f"), asked) as answer:
            assert answer.status == 403
        assert any(owner in said and "id-77" in said for said in caplog.messages), caplog.messages
