"""Readers that go away, stall, or come in great numbers leave a worker as it was."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from cache_engine import wire
from cache_engine.block import BLOCK
from tests.cache_engine.plane import Plane, descriptors, noise

BIG = noise(12 * BLOCK, 1)
SMALL = {f"s{n:02}": noise(BLOCK - n, n) for n in range(8)}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane"), {"big": BIG, **SMALL}) as plane:
        with plane.client() as client:
            client.read("big")
            client.read_many(list(SMALL))
        yield plane


def connected(plane: Plane, receive: int = 0) -> socket.socket:
    parts = urlsplit(plane.workers[0].url)
    sock = socket.socket()
    if receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    sock.connect((parts.hostname, parts.port))
    return sock


def head(method: str, target: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: w", *lines, "", ""]).encode()


def batch_request(plane: Plane) -> bytes:
    manifest = plane.manifest()
    body = wire.pack_indices([manifest.find(name.encode()) for name in SMALL])
    return head("POST", plane.target(tail="/batch"), f"Content-Length: {len(body)}") + body


def requests(plane: Plane) -> list[bytes]:
    return [
        head("GET", plane.target("big"), f"Range: bytes=0-{len(BIG) - 1}"),
        head("GET", plane.target("big"), f"Range: bytes=5-{BLOCK - 5}"),
        head("GET", "/v1/datasets/d/files/big"),
        batch_request(plane),
    ]


def settled(plane: Plane) -> None:
    """Every answer that was under way has ended: the worker has no connection and no lease left."""
    tier = plane.workers[0].worker.tier
    while any(cell.leases for cell in list(tier.table.cells.values())):
        plane.beat(times=1)


def test_two_hundred_readers_that_hang_up_in_the_middle_leave_no_descriptor_behind(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    asked = requests(plane)
    for request in asked:
        with connected(plane) as sock:
            sock.sendall(request)
            sock.recv(1000)
    settled(plane)
    before = descriptors()
    for number in range(200):
        with connected(plane, receive=4096) as sock:
            sock.sendall(asked[number % len(asked)])
            if number % 3:
                sock.recv(100 * (number % 7) + 1)
            if number % 2:  # a reset instead of an end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    settled(plane)
    while descriptors() > before + 3:
        plane.beat(times=1)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    with plane.client() as client:
        assert client.read("big") == BIG
        assert client.read_many(list(SMALL)) == list(SMALL.values())


def test_readers_that_take_nothing_do_not_keep_others_from_theirs(plane: Plane) -> None:
    with ExitStack() as stalled:
        for _ in range(40):
            for request in requests(plane):
                sock = stalled.enter_context(connected(plane, receive=4096))
                sock.sendall(request)
        with plane.client() as client:
            assert client.read("big") == BIG
            assert client.read("big", 5, 100) == BIG[5:105]
            assert client.read_many(list(SMALL)) == list(SMALL.values())
    settled(plane)


def test_a_pipelining_reader_gets_answer_after_answer(plane: Plane) -> None:
    with connected(plane) as sock:
        sock.sendall(head("GET", "/v1/datasets/d/files/s07") * 3 + head("GET", "/healthz", "Connection: close"))
        got = b""
        while piece := sock.recv(1 << 16):
            got += piece
    assert got.count(SMALL["s07"]) == 3 and got.endswith(b'"ok": true}')
