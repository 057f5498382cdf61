"""Web servers as they are: redirects, HEAD that hangs, no ETag, index pages that lie."""

from __future__ import annotations

import logging
import shutil
import subprocess
import threading

import pytest

from benchmarks.objectstore import ObjectStore
from cache_engine.errors import (
    AccessDenied,
    InvalidValue,
    NotFound,
    ObjectChanged,
    SourceUnavailable,
    UnsupportedSource,
)
from cache_engine.sources import open_source
from cache_engine.sources.http import HttpSource
from cache_engine.sources.index_page import entries, names
from tests.cache_engine.wire_server import Request, WireServer, ok
from tests.contracts.places import Place, fetch, identify, listed

BODY = bytes(range(256)) * 40


@pytest.fixture
def store():
    with ObjectStore("http") as made:
        yield made


def test_a_url_of_a_file_is_a_listing_of_one(store):
    store.put("d/model v2.bin", BODY)
    store.put("d/other", b"x")
    source = open_source(f"{store.url}/d/model%20v2.bin", {}, {})
    assert list(listed(source)) == [b"model v2.bin"]
    assert fetch(source, identify(source, b"model v2.bin")) == BODY
    with pytest.raises(NotFound):
        source.stat(b"other")
    with pytest.raises(NotFound):
        listed(open_source(f"{store.url}/d/absent", {}, {}))


def test_the_query_of_a_signed_url_is_sent_and_never_shown(store):
    store.put("d/x", BODY)
    source = open_source(f"{store.url}/d/x?signature=seeded-secret", {}, {})
    obj = identify(source, b"x")
    assert fetch(source, obj) == BODY
    assert all(request.target.endswith("?signature=seeded-secret") for request in store.log)
    assert "seeded-secret" not in repr(source) + source.name
    assert source.name != open_source(f"{store.url}/d/x?signature=other", {}, {}).name
    store.rule("status", match="HEAD *", code=403)
    assert identify(source, b"x") == obj
    store.rule("status", code=403)
    with pytest.raises(AccessDenied) as caught:
        source.stat(b"x")
    assert "seeded-secret" not in str(caught.value)


def test_a_manifest_names_the_files_where_no_index_does(store):
    store.put("d/list.txt", "a b\r\nsub/c%d\n\nsub/ü\n")
    for key in ("d/a b", "d/sub/c%d", "d/sub/ü", "d/not named"):
        store.put(key, key)
    source = open_source(f"{store.url}/d/", {"manifest": "list.txt"}, {})
    assert {key.decode() for key in listed(source)} == {"a b", "sub/c%d", "sub/ü"}
    store.put("d/list.txt", "a b\ngone\n")
    with pytest.raises(NotFound):
        listed(source)


@pytest.mark.parametrize("line", ["../x", "/etc/passwd", "a/../../x", "a//b", "a/./b", "a\0b"])
def test_a_manifest_cannot_lead_out_of_its_mount(store, line):
    store.put("d/list.txt", f"fine\n{line}\n")
    store.put("d/fine", "x")
    with pytest.raises(InvalidValue):
        listed(open_source(f"{store.url}/d/", {"manifest": "list.txt"}, {}))
    with pytest.raises(ValueError):
        names(line.encode())
    with pytest.raises(NotFound):
        open_source(f"{store.url}/d/", {}, {}).stat(line.encode())


NGINX = """<html><body><h1>Index of /d/</h1><hr><pre><a href="../">../</a>
<a href="sub/">sub/</a>   02-Jan-2026 10:00   -
<a href="a%20b.bin">a b.bin</a> 02-Jan-2026 10:00 1.2K
<a href="x%2By">x+y</a></pre></body></html>"""
APACHE = """<table><tr><th><a href="?C=N;O=D">Name</a></th></tr><tr><td><a href="/">Parent Directory</a></td></tr>
<tr><td><A HREF="/d/r&amp;d.txt">r&amp;d</A></td></tr>
<tr><td><a href="http://h/d/full">full</a></td></tr></table>"""
HOSTILE = """<a href="http://evil/d/x"><a href="//evil/d/x"><a href="../../etc/passwd"><a href="%2e%2e/x">
<a href="a%2Fb"><a href="deep/er"><a href="javascript:alert(1)"><a href="x?y=1">
<a href="%00"><a href="http://[::1"><a href=""><a>"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [(NGINX, ([b"sub/", b"a b.bin", b"x+y"], 0)), (APACHE, ([b"r&d.txt", b"full"], 0)), (HOSTILE, ([], 4))],
)
def test_only_names_directly_below_are_taken_from_an_index(page, expected):
    assert entries(page, "http://h/d/") == expected


def test_an_index_that_names_what_is_not_there_says_so_and_goes_on(store, caplog):
    store.put("d/x", BODY)
    store.put("d/broken", BODY)
    store.rule("status", match="HEAD */broken", code=404)
    with caplog.at_level(logging.WARNING):
        assert set(listed(open_source(f"{store.url}/d/", {}, {}))) == {b"x"}
    assert "broken" in caplog.text


def test_an_index_that_contains_itself_ends():
    page = ok(b'<a href="again/">', "Content-Type: text/html")
    with WireServer(lambda request: (page,)) as server, pytest.raises(UnsupportedSource, match="64 directories"):
        listed(open_source(f"{server.url}/d/", {}, {}))


@pytest.mark.case("A36")
def test_a_head_that_is_not_allowed_is_replaced_by_a_get_of_one_byte(store):
    store.put("d/x", BODY)
    store.put("d/empty", b"")
    store.rule("no_head", match="* *", code=405)
    source = open_source(f"{store.url}/d/", {}, {})
    assert {key: size for key, (size, _, _) in listed(source).items()} == {b"x": len(BODY), b"empty": 0}
    assert fetch(source, identify(source, b"x")) == BODY


@pytest.mark.case("A36")
def test_a_head_that_hangs_is_waited_for_once(store):
    store.put("d/x", BODY)
    store.rule("no_head", match="* *", code=405, hang=60)
    source = open_source(f"{store.url}/d/", {"headTimeout": "50ms"}, {})
    assert identify(source, b"x").size == len(BODY)
    assert identify(source, b"x").size == len(BODY)
    assert store.count("HEAD") <= 1 and store.count("GET") == 2


def test_a_server_without_etags_is_held_to_its_last_modified():
    state = {"date": "Tue, 14 Nov 2023 22:13:20 GMT", "body": BODY}

    def answer(request: Request):
        whole = ok(state["body"], f"Last-Modified: {state['date']}")
        return (whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else whole,)

    with WireServer(answer) as server:
        source = open_source(f"{server.url}/x", {}, {})
        obj = identify(source, b"x")
        assert obj.version == "mtime:1700000000000000000"
        assert fetch(source, obj, 100, 200) == BODY[100:200]
        assert server.log[-1].headers["if-unmodified-since"] == state["date"]
        state["date"] = "Tue, 14 Nov 2023 22:13:21 GMT"
        with pytest.raises(ObjectChanged):
            fetch(source, obj)


def test_a_server_that_tells_nothing_but_sizes_is_read_with_a_warning(caplog):
    with WireServer(lambda request: (ok(b"") if request.method == "HEAD" else ok(BODY),)) as server:
        with caplog.at_level(logging.WARNING):
            source = HttpSource(f"{server.url}/x", {}, {})
            assert source.stat(b"x").version == "mtime:0"
            source.stat(b"x")
        assert caplog.text.count("will not be seen") == 1


def test_a_length_that_nobody_tells_is_unsupported():
    def answer(request: Request):
        return (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"" if request.method == "HEAD" else b"0\r\n\r\n"),
        )

    with WireServer(answer) as server, pytest.raises(UnsupportedSource, match="how long"):
        open_source(f"{server.url}/x", {}, {}).stat(b"x")


def test_redirects_are_followed_and_credentials_stay_at_home():
    with ObjectStore("http") as other:
        other.put("real", BODY)

        def answer(request: Request):
            where = f"{other.url}/real" if request.target == "/here" else "/here"
            return (ok(b"", f"Location: {where}", status="302 Found"),)

        with WireServer(answer) as server:
            source = open_source(f"{server.url}/x", {}, {"bearerToken": "seeded-secret"})
            assert fetch(source, identify(source, b"x")) == BODY
            assert all(request.headers["authorization"] == "Bearer seeded-secret" for request in server.log)
            assert other.log and not any("authorization" in request.headers for request in other.log)


@pytest.mark.parametrize("where", ["ftp://h/x", "http://user:pw@h/x", "http://[::1", "/again", "file:///etc/passwd"])
def test_redirects_that_lead_nowhere_good_are_not_followed(where):
    with WireServer(lambda request: (ok(b"", f"Location: {where}", status="301 Moved"),)) as server:
        with pytest.raises((UnsupportedSource, InvalidValue)) as caught:
            open_source(f"{server.url}/x", {}, {}).stat(b"x")
        assert len(server.log) <= 6 and "pw@" not in str(caught.value)


def test_a_broken_connection_under_head_is_tried_again_and_not_taken_for_no_head(store):
    store.put("d/x", BODY)
    source = HttpSource(f"{store.url}/d/", {}, {})
    store.rule("status", match="HEAD *", times=1, code=502)
    with pytest.raises(SourceUnavailable):
        source.stat(b"x")
    assert source.stat(b"x").size == len(BODY) and store.count("GET") == 0


def test_a_certificate_that_is_not_trusted_is_not_used_and_a_named_one_is(tmp_path):
    """Also the whole path over TLS: heads, ranges, and a body of many records."""
    import ssl

    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there is no certificate to serve TLS with")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl is too old to put an address into a certificate (-addext)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    body = BODY * 100

    def answer(request: Request):
        whole = ok(body, 'ETag: "e"')
        return (whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else whole,)

    with WireServer(answer, tls=context) as server:
        with pytest.raises(SourceUnavailable, match="TLS"):
            HttpSource(f"{server.url}/x", {}, {}).stat(b"x")
        source = open_source(f"{server.url}/x", {"caFile": str(tmp_path / "cert")}, {})
        obj = identify(source, b"x")
        assert fetch(source, obj) == body == fetch(source, obj)
        assert len({request.connection for request in server.log if request.method == "GET"}) == 1
        never = threading.Event()
        server.answer = lambda request: (ok(body, 'ETag: "e"')[:50_000], never)
        impatient = HttpSource(f"{server.url}/x", {"caFile": str(tmp_path / "cert"), "progressTimeout": "100ms"}, {})
        with pytest.raises(SourceUnavailable, match="silent"):
            fetch(impatient, obj)
        never.set()


def test_an_index_behind_a_login_is_denied(remote: Place):
    if remote.url.startswith("http"):
        remote.credentials = {}
        with pytest.raises(AccessDenied):
            listed(remote.open())
