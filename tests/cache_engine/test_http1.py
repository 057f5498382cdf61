from __future__ import annotations

import os
import socket
import threading

import pytest

from cache_engine.errors import InvalidValue
from cache_engine.http1 import ConnectFailed, ConnectionBroken, Pool, TimedOut, Timeouts
from tests.cache_engine.wire_server import CLOSE, RESET, Request, WireServer, ok

BODY = os.urandom(300_000)
IMPATIENT = Timeouts(connect=2, first_byte=0.05, progress=0.05)


def fixed(*pieces):
    return lambda request: pieces


def test_a_body_lands_in_the_view_and_the_connection_is_used_again():
    with WireServer(fixed(ok(BODY, "X-Thing: a", "x-thing: b"))) as server:
        pool = Pool(server.url)
        buffer = bytearray(len(BODY) + 10)
        for _ in range(3):
            with pool.request("GET", "/x") as response:
                assert (response.status, response.length) == (200, len(BODY))
                assert response.headers["x-thing"] == "a, b"
                assert response.readinto(memoryview(buffer)[:100]) == 100
                assert response.readinto(memoryview(buffer)[100:]) == len(BODY) - 100
                assert response.readinto(memoryview(buffer)) == 0
            assert buffer[: len(BODY)] == BODY
        assert server.connections == 1
        assert server.log[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert "idle=1/64" in repr(pool)


def test_the_warmest_connection_is_taken_first():
    with WireServer(fixed(ok(b"x"))) as server:
        pool = Pool(server.url)
        first, second = pool.request("GET", "/1"), pool.request("GET", "/2")
        for response in (first, second):
            response.read(10)
            response.close()
        pool.request("GET", "/3").close()
        assert [request.connection for request in server.log] == [0, 1, 1]


def test_an_unread_body_costs_its_connection():
    with WireServer(fixed(ok(BODY))) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request("GET", "/x") as response:
                response.readinto(memoryview(bytearray(10)))
        assert server.connections == 2


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\n\r\n"),
    ],
)
def test_answers_without_a_body_leave_the_connection_clean(method, answer):
    with WireServer(fixed(answer)) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request(method, "/") as response:
                assert response.length == 0 and response.done and response.read(9) == b""
        assert server.connections == 1


def chunks(*parts: bytes, trailer: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x;x=y\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n" + trailer + b"\r\n"


@pytest.mark.parametrize("step", [1, 7, 1000, len(BODY), len(BODY) + 1])
def test_chunked_bodies_are_joined_and_the_connection_survives(step):
    body = BODY[:3000] if step < 1000 else BODY
    with WireServer(fixed(chunks(body[:1], body[1:2000], body[2000:]))) as server:
        pool = Pool(server.url)
        for _ in range(2):
            got = bytearray()
            piece = bytearray(step)
            with pool.request("GET", "/") as response:
                assert response.length is None
                while count := response.readinto(memoryview(piece)):
                    got += piece[:count]
            assert got == body
        assert server.connections == 1


def test_trailers_are_read_past():
    with WireServer(fixed(chunks(b"abc", trailer=b"X-Sum: 1\r\n"))) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request("GET", "/") as response:
                assert response.read(100) == b"abc" and response.done
        assert server.connections == 1


def test_a_body_without_a_length_ends_with_the_connection():
    with (
        WireServer(fixed(b"HTTP/1.1 200 OK\r\n\r\n", BODY, CLOSE)) as server,
        Pool(server.url).request("GET", "/") as response,
    ):
        assert response.length is None
        assert response.read(1 << 20) == BODY and response.done


def test_read_stops_at_its_limit_and_says_that_more_was_there():
    with WireServer(fixed(ok(BODY))) as server, Pool(server.url).request("GET", "/") as response:
        assert response.read(1000) == BODY[:1000] and not response.done


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_short_body_says_how_many_bytes_are_good(end):
    sent = threading.Event()
    with WireServer(fixed(ok(BODY)[:-100_000], sent, end)) as server, Pool(server.url).request("GET", "/") as response:
        buffer = bytearray(len(BODY))
        response.readinto(memoryview(buffer)[:1000])
        assert response.readinto(memoryview(buffer)[1000:150_000]) == 149_000
        if end is CLOSE:
            sent.set()
        else:
            response.readinto(memoryview(buffer)[150_000:200_000])
            sent.set()
        with pytest.raises(ConnectionBroken) as caught:
            at = 150_000 if end is CLOSE else 200_000
            response.readinto(memoryview(buffer)[at:])
        assert at + caught.value.received == 200_000
        assert buffer[:200_000] == BODY[:200_000]
        with pytest.raises(ConnectionBroken):
            response.readinto(memoryview(buffer))


def test_a_chunked_body_that_breaks_says_how_many_bytes_are_good():
    whole = chunks(BODY[:1000], BODY[1000:2000])
    with WireServer(fixed(whole[:-500], CLOSE)) as server, Pool(server.url).request("GET", "/") as response:
        buffer = bytearray(5000)
        with pytest.raises(ConnectionBroken) as caught:
            response.readinto(memoryview(buffer))
        assert 1000 < caught.value.received < 2000
        assert buffer[: caught.value.received] == BODY[: caught.value.received]


def test_silence_before_the_answer_and_in_the_middle_of_it_are_time_outs():
    never = threading.Event()
    with WireServer(lambda request: (never,) if request.target == "/head" else (ok(BODY)[:5000], never)) as server:
        pool = Pool(server.url, timeouts=IMPATIENT)
        with pytest.raises(TimedOut):
            pool.request("GET", "/head")
        with pool.request("GET", "/body") as response:
            buffer = memoryview(bytearray(len(BODY)))
            got = 0
            with pytest.raises(TimedOut) as caught:
                while True:
                    got += response.readinto(buffer[got:])
            assert buffer[: got + caught.value.received] == BODY[: got + caught.value.received]
        never.set()


def test_a_connection_that_died_while_idle_is_replaced_unseen():
    def answer(request: Request):
        return (ok(b"first"), CLOSE) if request.number == 0 else (ok(b"again"),)

    with WireServer(answer) as server:
        pool = Pool(server.url)
        for expected in (b"first", b"again"):
            with pool.request("GET", "/") as response:
                assert response.read(99) == expected
        assert server.connections == 2


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_connection_that_dies_on_the_second_request_is_replaced_once(end):
    def answer(request: Request):
        return (end,) if request.number == 1 else (ok(b"x"),)

    with WireServer(answer) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request("GET", "/") as response:
                assert response.read(99) == b"x"
        assert [(request.connection, request.number) for request in server.log] == [(0, 0), (0, 1), (1, 2)]


def test_a_request_that_may_not_be_repeated_is_not():
    def answer(request: Request):
        return (RESET,) if request.method == "POST" else (ok(b"x"),)

    with WireServer(answer) as server:
        pool = Pool(server.url)
        with pool.request("GET", "/") as response:
            response.read(9)
        with pytest.raises(ConnectionBroken):
            pool.request("POST", "/", body=b"order")
        assert [request.method for request in server.log] == ["GET", "POST"]


def test_a_fresh_connection_that_dies_is_an_error_at_once():
    with WireServer(fixed(CLOSE)) as server:
        with pytest.raises(ConnectionBroken):
            Pool(server.url).request("GET", "/")
        assert len(server.log) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2OO OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
    ],
)
def test_what_is_not_http_is_refused(answer):
    with WireServer(fixed(answer, CLOSE)) as server, pytest.raises(ConnectionBroken):
        Pool(server.url).request("GET", "/")


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n", b"-1\r\n", b"3\r\nabcdef\r\n", b"4" * 5000])
def test_chunks_that_lie_are_refused(body):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        WireServer(fixed(head + body, CLOSE)) as server,
        Pool(server.url).request("GET", "/") as response,
        pytest.raises(ConnectionBroken),
    ):
        response.read(100_000)


def test_an_interim_answer_is_read_past():
    with (
        WireServer(fixed(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok(b"x"))) as server,
        Pool(server.url).request("GET", "/") as response,
    ):
        assert response.read(9) == b"x"


def test_bytes_after_the_body_are_never_the_next_answer():
    with WireServer(fixed(ok(b"x") + ok(b"smuggled"))) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request("GET", "/") as response:
                assert response.read(9) == b"x"
        assert server.connections == 2


@pytest.mark.parametrize("version", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n"])
def test_a_server_that_will_close_is_believed(version):
    with WireServer(fixed(version + b"Content-Length: 1\r\n\r\nx")) as server:
        pool = Pool(server.url)
        for _ in range(2):
            with pool.request("GET", "/") as response:
                assert response.read(9) == b"x"
        assert server.connections == 2


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", ()),
        ("GET", "/a\r\nX: y", ()),
        ("GET", "/ä", ()),
        ("GET", "", ()),
        ("GET /x", "/", ()),
        ("GET", "/", [("X", "a\r\nY: b")]),
        ("GET", "/", [("X", "a\nb")]),
        ("GET", "/", [("X: y", "a")]),
        ("GET", "/", [("X", "\u20ac")]),
    ],
)
def test_nothing_can_smuggle_a_header_into_a_request(method, target, headers):
    with pytest.raises(InvalidValue):
        Pool("http://127.0.0.1:9").request(method, target, headers)


def test_a_body_is_sent_with_its_length():
    with WireServer(lambda request: (ok(request.body),)) as server:
        for body in (b"", b"small", BODY):
            with Pool(server.url).request("POST", "/", body=body) as response:
                assert response.read(1 << 20) == body
        assert server.log[0].headers["content-length"] == "0"


def test_a_forked_child_takes_no_connection_of_its_parent():
    with WireServer(fixed(ok(BODY))) as server:
        pool = Pool(server.url)

        def read() -> bool:
            with pool.request("GET", "/") as response:
                return response.read(1 << 20) == BODY

        assert read()
        held = pool.request("GET", "/held")
        child = os.fork()
        if child == 0:
            held.close()
            os._exit(0 if read() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert held.read(1 << 20) == BODY
        held.close()
        assert read()
        assert [request.connection for request in server.log] == [0, 0, 1, 0]


def test_many_threads_share_a_pool():
    with WireServer(lambda request: (ok(request.target.encode() * 1000),)) as server:
        pool = Pool(server.url, size=4)
        wrong = []

        def work(number: int) -> None:
            for turn in range(20):
                target = f"/{number}-{turn}"
                with pool.request("GET", target) as response:
                    if response.read(1 << 20) != target.encode() * 1000:
                        wrong.append(target)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and len(server.log) == 160


def test_nobody_there_is_a_failed_connect():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        Pool(f"http://127.0.0.1:{port}").request("GET", "/")


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://u:secret@host", "http://h:99999", "x", "http://a b/", "http://[::1"]
)
def test_only_the_url_of_an_origin_is_taken(url):
    with pytest.raises(InvalidValue) as caught:
        Pool(url)
    assert "secret" not in str(caught.value)
