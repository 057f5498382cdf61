"""The object store as a plain web server, over real sockets."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from benchmarks.objectstore import ObjectStore
from tests.benchmarks.wire import ask, ask_on, connect


def test_an_object_is_read_whole_in_part_and_from_its_end():
    with ObjectStore(objects={"d/k": b"0123456789"}) as store:
        whole = ask(store.url, "GET", "/d/k")
        assert (whole.status, whole.body, whole.headers["accept-ranges"]) == (200, b"0123456789", "bytes")
        part = ask(store.url, "GET", "/d/k", {"Range": "bytes=2-4"})
        assert (part.status, part.body, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
        assert ask(store.url, "GET", "/d/k", {"Range": "bytes=-3"}).body == b"789"
        head = ask(store.url, "HEAD", "/d/k")
        assert (head.body, head.headers["content-length"], head.headers["etag"]) == (b"", "10", whole.headers["etag"])
        assert ask(store.url, "GET", "/d/nothing").status == 404


def test_a_made_object_of_5_gib_is_exact_at_large_offsets():
    def make(offset: int, n: int) -> bytes:
        return bytes((position * 7) & 0xFF for position in range(offset, offset + n))

    size = 5 * 2**30 + 3
    with ObjectStore(objects={"big": (size, make)}) as store:
        for start in (2**31 - 32, 2**32 - 32):
            reply = ask(store.url, "GET", "/big", {"Range": f"bytes={start}-{start + 63}"})
            assert reply.body == make(start, 64)
            assert reply.headers["content-range"] == f"bytes {start}-{start + 63}/{size}"
        assert ask(store.url, "GET", "/big", {"Range": "bytes=-3"}).body == make(size - 3, 3)
        assert ask(store.url, "HEAD", "/big").headers["content-length"] == str(size)


def test_one_connection_carries_many_requests_and_everything_is_counted_at_once():
    with ObjectStore(objects={"k": b"x" * 100_000}) as store:
        connection = connect(store.url)
        for _ in range(3):
            assert len(ask_on(connection, "GET", "/k?a=%2B", {"X-Mine": "yes"}).body) == 100_000
        assert (store.tally.connections, store.tally.requests, store.sent) == (1, 3, 300_000)
        line = store.log[-1]
        assert (line.method, line.target, line.status, line.sent) == ("GET", "/k?a=%2B", 200, 100_000)
        assert line.headers["x-mine"] == "yes"
        assert store.count("GET", "/k", 200) == 3
        store.reset()
        assert (store.tally.requests, store.sent, store.log) == (0, 0, [])
        connection.close()


def test_requests_in_flight_are_counted_at_their_peak():
    both = threading.Barrier(2)

    def make(offset: int, n: int) -> bytes:
        both.wait(10)
        return b"x" * n

    with ObjectStore(objects={"k": (10, make)}) as store:
        threads = [threading.Thread(target=ask, args=(store.url, "GET", "/k")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.tally.peak_in_flight == 2


def test_the_absolute_form_of_a_target_is_understood():
    with ObjectStore(objects={"d/k": b"body"}) as store:
        assert ask(store.url, "GET", f"{store.url}/d/k").body == b"body"
        assert store.log[0].target == "/d/k"


def test_pipelined_requests_are_answered_in_order():
    with ObjectStore(objects={"a": b"first", "b": b"second"}) as store:
        with socket.create_connection(("127.0.0.1", store.port), timeout=10) as sock:
            last = b"GET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            sock.sendall(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n" + last)
            received = b"".join(iter(lambda: sock.recv(65536), b""))
        assert received.index(b"first") < received.index(b"second")


def test_what_is_not_http_gets_400():
    with ObjectStore() as store, socket.create_connection(("127.0.0.1", store.port), timeout=10) as sock:
        sock.sendall(b"hello\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")


def test_put_replaces_and_delete_removes():
    with ObjectStore(objects={"k": b"old"}) as store:
        old = ask(store.url, "HEAD", "/k").headers["etag"]
        assert ask(store.url, "PUT", "/k", body=b"new").status == 201
        assert ask(store.url, "GET", "/k").body == b"new"
        assert ask(store.url, "GET", "/k", {"If-Match": old}).status == 412
        assert ask(store.url, "DELETE", "/k").status == 204
        assert ask(store.url, "GET", "/k").status == 404


def test_a_chunked_put_is_put_together():
    with ObjectStore() as store:
        with socket.create_connection(("127.0.0.1", store.port), timeout=10) as sock:
            sock.sendall(
                b"PUT /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )
            assert sock.recv(100).startswith(b"HTTP/1.1 201 ")
        assert ask(store.url, "GET", "/k").body == b"abcde"


def test_own_headers_and_etag_go_out_as_given():
    with ObjectStore() as store:
        store.put("k", b"x", etag='"9b2c-3"', headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})
        reply = ask(store.url, "GET", "/k")
        assert (reply.headers["etag"], reply.headers["content-encoding"]) == ('"9b2c-3"', "gzip")
        assert reply.headers["content-type"] == "text/plain"


def test_folders_are_index_pages_and_fsspec_lists_them():
    fsspec = pytest.importorskip("fsspec")
    with ObjectStore(objects={"d/a b.txt": b"1", "d/sub/x": b"22", "d/c+d%.txt": b"333"}) as store:
        assert ask(store.url, "GET", "/d").headers["location"] == "/d/"
        page = ask(store.url, "GET", "/d/").body.decode()
        assert 'href="a%20b.txt"' in page and 'href="sub/"' in page and 'href="c%2Bd%25.txt"' in page
        assert ask(store.url, "GET", "/e/").status == 404
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        assert fs.cat(f"{store.url}/d/sub/x") == b"22"
        assert f"{store.url}/d/a%20b.txt" in fs.find(f"{store.url}/d/")


@pytest.mark.parametrize(
    ("credentials", "right", "challenge"),
    [(("me", "pass"), "Basic bWU6cGFzcw==", "Basic"), (("", "token"), "Bearer token", "Bearer")],
)
def test_wrong_or_no_credentials_are_refused(credentials, right, challenge):
    with ObjectStore(objects={"k": b"x"}, credentials=credentials) as store:
        assert ask(store.url, "GET", "/k", {"Authorization": right}).status == 200
        for headers in ({}, {"Authorization": right + "x"}):
            reply = ask(store.url, "GET", "/k", headers)
            assert reply.status == 401
            assert reply.headers["www-authenticate"].startswith(challenge)


def test_files_below_the_root_are_objects_and_a_replaced_one_is_another_version(tmp_path):
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "big"
    path.write_bytes(os.urandom(300_000))
    with ObjectStore(root=tmp_path) as store:
        first = ask(store.url, "GET", "/d/big")
        assert first.body == path.read_bytes()
        assert ask(store.url, "GET", "/d/big", {"Range": "bytes=299990-"}).body == first.body[-10:]
        path.write_bytes(b"other")
        assert ask(store.url, "GET", "/d/big", {"If-Match": first.headers["etag"]}).status == 412
        assert ask(store.url, "GET", "/d/big").body == b"other"
        (tmp_path / "d" / "late").write_bytes(b"late")
        assert ask(store.url, "GET", "/d/late").body == b"late"
        path.unlink()
        assert ask(store.url, "GET", "/d/big").status == 404


def test_no_target_leaves_the_root(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    with ObjectStore(root=tmp_path / "root") as store:
        for target in ("/../secret", "/%2e%2e/secret", "/%2e%2e%2fsecret", f"/{tmp_path}/secret", "/a%00b"):
            assert ask(store.url, "GET", target).status == 404


def test_put_stands_before_a_file_and_delete_leaves_the_file(tmp_path):
    (tmp_path / "k").write_bytes(b"file")
    with ObjectStore(root=tmp_path) as store:
        store.put("k", b"put")
        assert ask(store.url, "GET", "/k").body == b"put"
        assert store.delete("k")
        assert ask(store.url, "GET", "/k").status == 404
        store.shelf.rescan()
        assert ask(store.url, "GET", "/k").status == 404
    assert (tmp_path / "k").read_bytes() == b"file"


def test_bytes_leave_no_sooner_than_the_rate_allows(tmp_path):
    (tmp_path / "k").write_bytes(bytes(600_000))
    with ObjectStore(root=tmp_path, objects={"m": bytes(600_000)}, rate=3e6, first_byte=0.01) as store:
        for target in ("/k", "/m"):
            assert len(ask(store.url, "GET", target).body) == 600_000
        ended = store.log[1].at - store.log[0].at
        assert (
            ended >= 0.2 + 0.01
        )  # 600 kB at 3 MB/s after 10 ms: the schedule is a lower bound whatever the machine does


def test_close_ends_connections_that_idle_hang_or_crawl():
    with ObjectStore(objects={"k": b"x" * 10_000_000}) as store:
        store.rule("hang", "GET /hang")
        store.rule("slow", "GET /k", rate=1000)
        idle, hanging, crawling = (socket.create_connection(("127.0.0.1", store.port), timeout=10) for _ in range(3))
        hanging.sendall(b"GET /hang HTTP/1.1\r\nHost: h\r\n\r\n")
        crawling.sendall(b"GET /k HTTP/1.1\r\nHost: h\r\n\r\n")
        assert crawling.recv(10) == b"HTTP/1.1 2"
    assert hanging.recv(10) == b""
    assert idle.recv(10) == b""
    for sock in (idle, hanging, crawling):
        sock.close()
    store.close()
    assert not [t for t in threading.enumerate() if t.name == f"objectstore {store.port}"]


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="there are http, s3, oss"):
        ObjectStore("gopher")
