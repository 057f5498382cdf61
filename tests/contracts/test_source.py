"""What every source promises: one suite over every row of SOURCES, and over each signature of those that have two."""

from __future__ import annotations

import os
import threading

import pytest

from cache_engine.block import ObjectId
from cache_engine.errors import CacheEngineError, InvalidValue, NotFound, ObjectChanged, UnsupportedSource
from cache_engine.sources import SOURCES, check_url, open_source
from tests.contracts.places import CREDENTIALS, Place, everything_said, fetch, identify, listed, place

KINDS = ["file", "memory", "http", "s3", "oss", "oss-v4"]
STORES = ["http", "s3", "oss", "oss-v4"]
BODY = bytes(os.urandom(300_000))


@pytest.fixture(params=KINDS)
def somewhere(request, tmp_path):
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=STORES)
def store_place(request, tmp_path):
    with place(request.param, tmp_path) as made:
        yield made


def test_every_row_of_the_shelf_is_tried_here():
    assert set(SOURCES) == {"https", *(kind.partition("-")[0] for kind in KINDS)}


def test_a_listing_names_every_object_with_what_stat_says(somewhere: Place):
    bodies = {f"d{n % 3}/e/{n}.bin": BODY[:n] for n in range(7)} | {"top": b"t"}
    for key, body in bodies.items():
        somewhere.put(key, body)
    source = somewhere.open()
    found = listed(source)
    assert {key.decode(): size for key, (size, _, _) in found.items()} == {k: len(b) for k, b in bodies.items()}
    for key, (size, version, mtime_ns) in found.items():
        stat = source.stat(key)
        assert (stat.size, stat.version) == (size, version)
        assert abs(stat.mtime_ns - mtime_ns) < 1_000_000_000
        assert fetch(source, ObjectId(source.name, key, version, size)) == bodies[key.decode()]


def test_a_listing_is_never_an_old_one(somewhere: Place):
    somewhere.put("a", b"1")
    source = somewhere.open()
    assert set(listed(source)) == {b"a"}
    somewhere.put("b", b"2")
    assert set(listed(source)) == {b"a", b"b"}
    somewhere.delete("a")
    assert set(listed(source)) == {b"b"}


@pytest.mark.parametrize("step", [1, 977, 1 << 20])
def test_ranges_are_exact(somewhere: Place, step):
    somewhere.put("x", BODY)
    source = somewhere.open()
    obj = identify(source, b"x")
    reach = 50 if step == 1 else 100_000
    for start, stop in [(0, 1), (0, reach), (299_999, 300_000), (150_000, 150_000 + reach)]:
        assert fetch(source, obj, start, stop, step) == BODY[start:stop]


@pytest.mark.case("A12")
def test_an_empty_object_is_empty_and_asks_for_nothing(somewhere: Place):
    somewhere.put("empty", b"")
    source = somewhere.open()
    obj = identify(source, b"empty")
    assert obj.size == 0 and listed(source)[b"empty"][0] == 0
    before = somewhere.store.count("GET") if somewhere.store else 0
    assert fetch(source, obj) == b""
    assert (somewhere.store.count("GET") if somewhere.store else 0) == before


@pytest.mark.parametrize("new", [b"B" * 300_000, b"B" * 300_001, b"B" * 10, b""])
def test_another_version_is_an_error_and_never_bytes(somewhere: Place, new):
    somewhere.put("x", b"A" * 300_000)
    source = somewhere.open()
    obj = identify(source, b"x")
    somewhere.put("x", new)
    with pytest.raises(ObjectChanged):
        fetch(source, obj, 100_000, 200_000)
    if new:
        assert fetch(source, identify(source, b"x")) == new


def test_an_object_that_is_gone_has_changed_where_a_snapshot_names_it(somewhere: Place):
    somewhere.put("x", BODY)
    somewhere.put("y", BODY)
    source = somewhere.open()
    obj = identify(source, b"x")
    somewhere.delete("x")
    with pytest.raises(ObjectChanged):
        fetch(source, obj, 0, 10)
    with pytest.raises(NotFound):
        source.stat(b"x")


@pytest.mark.parametrize("key", [b"nothing", b"no/such/thing", b"\xff\xfe", b""])
def test_what_is_not_there_is_not_found(somewhere: Place, key):
    somewhere.put("x", BODY)
    with pytest.raises(NotFound):
        somewhere.open().stat(key)


def test_many_threads_read_one_source(somewhere: Place):
    somewhere.put("x", BODY)
    source = somewhere.open()
    obj = identify(source, b"x")
    wrong: list[object] = []

    def work(start: int) -> None:
        same = [fetch(source, obj, start, start + 20_000) == BODY[start : start + 20_000] for _ in range(5)]
        wrong.extend(start for good in same if not good)

    threads = [threading.Thread(target=work, args=(n * 20_000,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_reads_with_connections_of_its_own(somewhere: Place):
    somewhere.put("x", BODY)
    source = somewhere.open()
    obj = identify(source, b"x")
    held = source.read(obj, 0, 300_000)
    half = memoryview(bytearray(100_000))
    held.readinto(half)
    child = os.fork()
    if child == 0:
        fine = fetch(source, obj) == BODY and listed(source) and source.stat(b"x").size == 300_000
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    rest = memoryview(bytearray(200_000))
    assert held.readinto(rest) == 200_000 and bytes(half) + bytes(rest) == BODY
    held.close()
    assert fetch(source, obj) == BODY


def test_a_closed_source_can_be_used_again(somewhere: Place):
    somewhere.put("x", BODY)
    source = somewhere.open()
    obj = identify(source, b"x")
    source.close()
    assert fetch(source, obj) == BODY and set(listed(source)) == {b"x"}


def test_no_secret_shows_in_what_a_person_may_see(somewhere: Place):
    source = somewhere.open()
    assert not any(secret in repr(source) + source.name for secret in CREDENTIALS)


def test_the_name_is_the_same_for_the_same_place(somewhere: Place):
    assert somewhere.open().name == somewhere.open().name
    assert "://" in somewhere.open().name


@pytest.mark.parametrize(
    "url",
    ["", "bucket/x", "s3:/x", "s3://", "s3:///x", "s3://b", "oss://bucket/x", "file://host/x", "file:relative", "http://",
     "http://h", "http://user:pw@h/x", "http://h/a b", "http://h/x#y", "http://[::1/x", "S3://bucket/x", "file:///x?y"],
)  # fmt: skip
def test_urls_that_cannot_be_opened_are_refused_before_anything_connects(url):
    with pytest.raises(InvalidValue):
        check_url(url, {})
    with pytest.raises(InvalidValue):
        open_source(url, {}, {})


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/x", {"endpont": "http://h"}),
        ("s3://bucket/x", {"endpoint": "ftp://h"}),
        ("s3://bucket/x", {"endpoint": "http://u:p@h"}),
        ("s3://bucket/x", {"anonymous": "yes"}),
        ("s3://bucket/x", {"connectTimeout": "soon"}),
        ("s3://bucket/x", {"progressTimeout": "0s"}),
        ("oss://bucket/x", {"endpoint": "h", "signature": "v4"}),
        ("oss://bucket/x", {"endpoint": "h", "addressing": "both"}),
        ("http://h/x/", {"manifest": "http://other/list"}),
        ("http://h/x", {"manifest": "list.txt"}),
        ("file:///x", {"region": "r"}),
    ],
)
def test_options_that_are_not_allowed_are_refused(url, options):
    with pytest.raises(InvalidValue):
        check_url(url, options)


def test_a_protocol_that_nobody_knows_is_refused():
    with pytest.raises(UnsupportedSource, match="nosuch"):
        check_url("nosuch://bucket/x", {})


def test_wrong_credentials_are_denied_and_never_shown(store_place: Place):
    store_place.put("x", BODY)
    right = store_place.open()
    obj = identify(right, b"x")
    store_place.credentials = {**store_place.credentials}
    for name in ("secretAccessKey", "password"):
        if name in store_place.credentials:
            store_place.credentials[name] = "seeded-wrong-9"
    wrong = store_place.open()
    for ask in (lambda: listed(wrong), lambda: wrong.stat(b"x"), lambda: fetch(wrong, obj)):
        with pytest.raises(CacheEngineError) as caught:
            ask()
        assert caught.value.exit_code == 4
        said = everything_said(caught.value)
        assert not any(secret in said for secret in (*CREDENTIALS, "seeded-wrong-9"))
