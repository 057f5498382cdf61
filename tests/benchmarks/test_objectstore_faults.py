"""Every kind of fault, as a client sees it."""

from __future__ import annotations

import gzip
import http.client
import json
import socket

import pytest

from benchmarks.objectstore import ObjectStore
from tests.benchmarks.wire import ask, ask_on, connect

BODY = bytes(range(256)) * 400


@pytest.fixture
def store():
    with ObjectStore(objects={"k": BODY, "other": b"other"}) as running:
        yield running


def raw(store: ObjectStore, target: str = "/k", *, timeout: float = 10) -> bytes:
    """Everything that one GET is answered with until the connection ends or falls silent."""
    pieces = []
    with socket.create_connection(("127.0.0.1", store.port), timeout=timeout) as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        try:
            while piece := sock.recv(65536):
                pieces.append(piece)
        except TimeoutError:
            pass
    return b"".join(pieces)


def test_a_rule_acts_on_what_it_matches_after_some_and_so_often(store):
    rule = store.rule(
        "status", "GET /k*", times=2, after=1, code=503, body_code="SlowDown", headers={"Retry-After": "1"}
    )
    replies = [ask(store.url, "GET", "/k?n=1") for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 503, 503, 200]
    assert (replies[1].body, replies[1].headers["retry-after"]) == (b"SlowDown\n", "1")
    assert ask(store.url, "GET", "/other").status == 200
    assert (rule.seen, rule.used) == (4, 2)


def test_the_first_rule_that_is_not_used_up_decides(store):
    store.rule("status", times=1, code=500)
    store.rule("status", times=1, code=502)
    assert [ask(store.url, "GET", "/k").status for _ in range(3)] == [500, 502, 200]
    store.rule("status", code=500)
    store.clear_rules()
    assert ask(store.url, "GET", "/k").status == 200


def test_a_redirect_is_a_status(store):
    store.rule("status", "GET /old", code=302, headers={"Location": "/k"})
    reply = ask(store.url, "GET", "/old")
    assert (reply.status, reply.headers["location"]) == (302, "/k")


def test_an_unknown_kind_is_refused(store):
    with pytest.raises(ValueError, match="there are close_after"):
        store.rule("earthquake")


def test_delay_is_silence_before_the_right_answer(store):
    store.rule("delay", seconds=0.3)
    connection = connect(store.url)
    connection.timeout = 0.05
    with pytest.raises(TimeoutError):
        ask_on(connection, "GET", "/k")
    connection.close()
    assert ask(store.url, "GET", "/k").body == BODY


def test_hang_ends_with_the_client(store):
    store.rule("hang", times=1)
    assert raw(store, timeout=0.05) == b""
    assert ask(store.url, "GET", "/k").body == BODY
    assert store.log[0].status == 0


def test_hang_may_end_with_a_closed_connection(store):
    store.rule("hang", seconds=0.01)
    assert raw(store) == b""


def test_head_may_be_refused_where_get_is_served(store):
    store.rule("no_head", "*", code=405)
    assert ask(store.url, "HEAD", "/k").status == 405
    assert ask(store.url, "GET", "/k").body == BODY


def test_range_may_be_ignored(store):
    store.rule("ignore_range")
    reply = ask(store.url, "GET", "/k", {"Range": "bytes=100-109"})
    assert (reply.status, reply.body) == (200, BODY)
    assert "accept-ranges" not in reply.headers


@pytest.mark.parametrize("rate", [None, 1e8])
def test_a_body_may_be_cut(rate):
    with ObjectStore(objects={"k": BODY}, rate=rate) as store:
        store.rule("cut_body", times=1, send=70_000)
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(store.url, "GET", "/k")
        assert caught.value.partial == BODY[:70_000]
        store.rule("cut_body", times=1, send=0, rst=True)
        with pytest.raises(ConnectionResetError):
            ask(store.url, "GET", "/k")
        assert ask(store.url, "GET", "/k").body == BODY


def test_a_file_may_be_cut_too(tmp_path):
    (tmp_path / "k").write_bytes(BODY)
    with ObjectStore(root=tmp_path) as store:
        store.rule("cut_body", send=70_000)
        assert raw(store).endswith(BODY[:70_000])
        assert store.sent == 70_000


def test_a_short_body_leaves_the_connection_open(store):
    store.rule("short_body", times=1, send=10)
    with socket.create_connection(("127.0.0.1", store.port), timeout=10) as sock:
        sock.sendall(b"GET /k HTTP/1.1\r\nHost: h\r\n\r\n")
        received = b""
        while not received.endswith(BODY[:10]):
            received += sock.recv(65536)
        assert b"Content-Length: %d\r\n" % len(BODY) in received
        sock.sendall(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_range_may_come_shorter_than_asked(store):
    store.rule("short_range", less=4)
    reply = ask(store.url, "GET", "/k", {"Range": "bytes=10-19"})
    assert (reply.body, reply.headers["content-range"]) == (BODY[10:16], f"bytes 10-15/{len(BODY)}")


def test_a_content_range_may_be_wrong(store):
    store.rule("wrong_content_range", times=1, shift=5)
    reply = ask(store.url, "GET", "/k", {"Range": "bytes=10-19"})
    assert (reply.body, reply.headers["content-range"]) == (BODY[10:20], f"bytes 15-24/{len(BODY)}")
    store.rule("wrong_content_range", times=1, value="bytes 0-1/7")
    assert ask(store.url, "GET", "/k", {"Range": "bytes=10-19"}).headers["content-range"] == "bytes 0-1/7"


def test_one_bit_may_be_flipped(store):
    store.rule("corrupt", at=15)
    reply = ask(store.url, "GET", "/k", {"Range": "bytes=10-19"})
    assert reply.body == BODY[10:15] + bytes([BODY[15] ^ 1]) + BODY[16:20]


def test_a_whole_object_may_come_gzipped(store):
    store.rule("gzip_whole")
    reply = ask(store.url, "GET", "/k", {"Range": "bytes=0-9"})
    assert (reply.status, reply.headers["content-encoding"]) == (200, "gzip")
    assert gzip.decompress(reply.body) == BODY


def test_an_object_may_be_replaced_after_a_request(store):
    store.rule("replace_after", "GET /k", after=1, times=1, new=b"new", etag='"new"')
    assert [ask(store.url, "GET", "/k").body for _ in range(3)] == [BODY, BODY, b"new"]
    assert ask(store.url, "HEAD", "/k").headers["etag"] == '"new"'


def test_listings_may_be_denied_and_objects_not():
    with ObjectStore("s3", {"b/team/a/x": b"1", "b/y": b"2"}) as store:
        store.rule("deny_listing", "* *", allow=["b/team/a/"])
        assert ask(store.url, "GET", "/b?list-type=2").status == 403
        assert ask(store.url, "GET", "/b?list-type=2&prefix=team%2F").status == 403
        assert ask(store.url, "GET", "/b?list-type=2&prefix=team%2Fa%2F").status == 200
        assert ask(store.url, "GET", "/b/y").body == b"2"


def test_more_than_the_allowed_requests_a_second_get_503(store):
    store.rule("throttle", per_second=0.001, burst=3, retry_after=7)
    replies = [ask(store.url, "GET", "/k") for _ in range(5)]
    assert [reply.status for reply in replies] == [200, 200, 200, 503, 503]
    assert replies[-1].headers["retry-after"] == "7"


def test_a_random_share_is_the_same_for_the_same_seed():
    def statuses(**args) -> list[int]:
        with ObjectStore(objects={"k": b"x"}) as store:
            store.rule("flaky", share=0.5, **args)
            return [ask(store.url, "GET", "/k").status for _ in range(40)]

    assert statuses(seed=7) == statuses(seed=7)
    assert set(statuses(seed=7)) == {200, 503}


def test_a_seed_that_was_drawn_is_told(store):
    rule = store.rule("flaky", share=0.5)
    assert store.stats()["rules"][0]["seed"] == rule.args["seed"]
    json.dumps(store.stats())


def test_a_connection_may_be_closed_unannounced_after_an_answer(store):
    store.rule("close_after", times=1)
    connection = connect(store.url)
    reply = ask_on(connection, "GET", "/k")
    assert reply.body == BODY and "connection" not in reply.headers
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        ask_on(connection, "GET", "/k")
    connection.close()


def test_a_body_may_crawl(store):
    store.rule("slow", "GET /k", rate=1000)
    with socket.create_connection(("127.0.0.1", store.port), timeout=10) as sock:
        sock.sendall(b"GET /k HTTP/1.1\r\nHost: h\r\n\r\n")
        while b"\r\n\r\n" not in sock.recv(65536):
            pass
        assert 0 < len(sock.recv(65536)) < len(BODY)
