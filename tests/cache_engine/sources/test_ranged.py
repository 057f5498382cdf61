"""What servers answer to a range, and what is believed of it."""

from __future__ import annotations

import os

import pytest

from cache_engine.block import BLOCK, ObjectId
from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    ObjectChanged,
    SourceThrottled,
    SourceUnavailable,
    UnsupportedSource,
)
from cache_engine.sources.any_fsspec import from_os_error
from cache_engine.sources.ranged import judge
from cache_engine.sources.translation import BrokenBody
from tests.contracts.places import CREDENTIALS, Place, fetch, identify, place

BODY = os.urandom(300 << 10)


def gets(where: Place) -> list:
    return [request for request in where.store.log if "range" in request.headers]


@pytest.mark.case("A14")
def test_a_body_that_is_sent_encoded_is_refused_and_never_a_range(remote: Place):
    text = b'{"a": 1}' * 140
    remote.put("x.json", text)
    source = remote.open()
    obj = identify(source, b"x.json")
    remote.store.rule("gzip_whole")
    for start, stop in ((0, 100), (500, len(text))):
        with pytest.raises(UnsupportedSource, match="gzip"):
            fetch(source, obj, start, stop)
    assert all(request.headers["accept-encoding"] == "identity" for request in gets(remote))


@pytest.mark.case("A15")
def test_a_server_that_ignores_ranges_gives_the_right_bytes(remote: Place):
    remote.put("x", BODY)
    source = remote.open()
    obj = identify(source, b"x")
    remote.store.rule("ignore_range")
    for start, stop in ((100_000, 100_050), (0, 10), (len(BODY) - 1, len(BODY))):
        assert fetch(source, obj, start, stop) == BODY[start:stop]


@pytest.mark.case("A15")
def test_an_object_read_in_order_from_such_a_server_travels_once(remote: Place):
    body = os.urandom(8 * BLOCK + 5)
    remote.put("x", body)
    source = remote.open()
    obj = identify(source, b"x")
    remote.store.rule("ignore_range")
    pieces = [fetch(source, obj, at, min(at + BLOCK, len(body))) for at in range(0, len(body), BLOCK)]
    assert b"".join(pieces) == body
    assert len(gets(remote)) == 1
    source.close()


@pytest.mark.case("A16")
def test_an_object_replaced_in_the_middle_of_a_read_is_never_a_mixture(remote: Place):
    old, new = b"A" * 12 * 1000, b"B" * 12 * 1000
    remote.put("x", old)
    source = remote.open()
    obj = identify(source, b"x")
    remote.store.rule("replace_after", after=2, times=1, new=new)
    got = b""
    with pytest.raises(ObjectChanged):
        for at in range(0, len(old), 1000):
            got += fetch(source, obj, at, at + 1000)
    assert got == b"A" * 3000
    assert all(request.headers["if-match"] == obj.version.removeprefix("etag:") for request in gets(remote))


@pytest.mark.case("A16")
def test_a_store_that_ignores_if_match_is_caught_by_what_it_says_of_itself(remote: Place):
    remote.put("x", b"A" * 1000)
    source = remote.open()
    obj = identify(source, b"x")
    other = ObjectId(obj.source, obj.key, 'etag:"of-another-time"', obj.size)
    with pytest.raises(ObjectChanged):
        fetch(source, other)
    headers = {"etag": '"new"', "content-range": "bytes 0-9/1000"}
    with pytest.raises(ObjectChanged, match="ETag"):
        judge(206, headers, 10, other, range(10))


@pytest.mark.case("A19")
def test_an_etag_of_a_multipart_upload_is_opaque(remote: Place):
    etag = '"9b2cf535f27731c974343645a3985328-3"'
    remote.store.put(remote.prefix + "x", BODY, etag=etag)
    source = remote.open()
    obj = identify(source, b"x")
    assert obj.version == f"etag:{etag}"
    for _ in range(2):
        assert fetch(source, obj) == BODY
    assert len(gets(remote)) == 2


def test_a_weak_etag_is_compared_and_never_demanded_with_if_match(remote: Place):
    remote.store.put(remote.prefix + "x", BODY, etag='W/"weak"', mtime=1_700_000_000)
    source = remote.open()
    obj = identify(source, b"x")
    assert obj.version == 'weak:W/"weak"@1700000000'
    assert fetch(source, obj) == BODY
    headers = gets(remote)[-1].headers
    assert "if-match" not in headers and headers["if-unmodified-since"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    remote.store.put(remote.prefix + "x", BODY, etag='W/"weak"', mtime=1_700_000_009)
    with pytest.raises(ObjectChanged):
        fetch(source, obj)


@pytest.mark.parametrize(
    ("code", "body_code", "expected"),
    [
        (403, "AccessDenied", AccessDenied),
        (401, "Unauthorized", AccessDenied),
        (404, "NoSuchKey", ObjectChanged),
        (410, "Gone", ObjectChanged),
        (412, "PreconditionFailed", ObjectChanged),
        (416, "InvalidRange", ObjectChanged),
        (429, "TooManyRequests", SourceThrottled),
        (503, "SlowDown", SourceThrottled),
        (500, "InternalError", SourceUnavailable),
        (502, "BadGateway", SourceUnavailable),
        (504, "GatewayTimeout", SourceUnavailable),
        (408, "RequestTimeout", SourceUnavailable),
        (400, "RequestHeaderSectionTooLarge", UnsupportedSource),
        (501, "NotImplemented", UnsupportedSource),
    ],
)
def test_every_status_is_an_error_of_ours(remote: Place, code, body_code, expected):
    remote.put("x", BODY)
    source = remote.open_bare()
    obj = identify(source, b"x")
    remote.store.rule("status", times=1, code=code, body_code=body_code)
    with pytest.raises(expected) as caught:
        fetch(source, obj)
    assert caught.type is expected and str(code) in str(caught.value) + "404410416"
    assert fetch(source, obj) == BODY


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeout"])
def test_a_400_is_told_apart_by_its_code(bucket: Place, code):
    bucket.put("x", BODY)
    source = bucket.open_bare()
    obj = identify(source, b"x")
    bucket.store.rule("status", times=1, code=400, body_code=code)
    with pytest.raises(AccessDenied if code == "ExpiredToken" else SourceUnavailable):
        fetch(source, obj)


def test_retry_after_is_passed_on(remote: Place):
    remote.put("x", BODY)
    source = remote.open_bare()
    obj = identify(source, b"x")
    remote.store.rule("status", times=1, code=503, body_code="SlowDown", headers={"Retry-After": "7"})
    with pytest.raises(SourceThrottled) as caught:
        fetch(source, obj)
    assert caught.value.retry_after == 7


@pytest.mark.parametrize("rst", [False, True])
def test_a_broken_body_says_how_many_bytes_are_good(remote: Place, rst):
    remote.put("x", BODY)
    source = remote.open_bare()
    obj = identify(source, b"x")
    remote.store.rule("cut_body", times=1, send=100_000, rst=rst)
    buffer = bytearray(len(BODY))
    stream = source.read(obj, 0, len(BODY))
    with pytest.raises(SourceUnavailable) as caught:
        stream.readinto(memoryview(buffer))
    received = getattr(caught.value, "received", 0)
    assert received <= 100_000 and buffer[:received] == BODY[:received]
    if not rst:
        assert isinstance(caught.value, BrokenBody) and received == 100_000
    stream.close()


def test_silence_is_unavailable(remote: Place):
    remote.put("x", BODY)
    source = remote.open_bare(firstByteTimeout="50ms", progressTimeout="50ms")
    obj = identify(source, b"x")
    remote.store.rule("hang", times=1)
    with pytest.raises(SourceUnavailable, match="silent"):
        fetch(source, obj)
    remote.store.rule("short_body", times=1, send=1000)
    with pytest.raises(SourceUnavailable, match="silent"):
        fetch(source, obj)


def test_a_range_under_a_wrong_name_is_refused(remote: Place):
    remote.put("x", BODY)
    source = remote.open_bare()
    obj = identify(source, b"x")
    remote.store.rule("wrong_content_range", times=1, shift=1)
    with pytest.raises(CacheEngineError):
        fetch(source, obj, 10, 20)
    remote.store.rule("wrong_content_range", times=1, value="bytes 10-19/999")
    with pytest.raises(ObjectChanged, match="999 bytes"):
        fetch(source, obj, 10, 20)


def test_oss_is_asked_for_standard_ranges(tmp_path):
    with place("oss", tmp_path) as where:
        where.put("x", BODY)
        source = where.open()
        fetch(source, identify(source, b"x"), 0, 10)
        assert gets(where)[0].headers["x-oss-range-behavior"] == "standard"


OBJ = ObjectId("s", b"k", 'etag:"e"', 100)


@pytest.mark.parametrize(
    ("status", "headers", "length", "expected"),
    [
        (206, {"content-range": "bytes 10-19/100"}, 10, None),
        (206, {"content-range": "bytes 10-19/*"}, None, None),
        (206, {"content-range": "bytes 10-14/100"}, 5, None),
        (206, {"content-range": "bytes 10-14/100"}, 10, SourceUnavailable),
        (206, {"content-range": "bytes 10-29/100"}, 20, UnsupportedSource),
        (206, {"content-range": "bytes 9-19/100"}, 11, UnsupportedSource),
        (206, {"content-range": "bytes 19-10/100"}, 10, UnsupportedSource),
        (206, {"content-range": "bytes=10-19/100"}, 10, UnsupportedSource),
        (206, {"content-type": "multipart/byteranges; boundary=x"}, 100, UnsupportedSource),
        (206, {"content-range": "bytes 10-19/101"}, 10, ObjectChanged),
        (206, {"content-range": "bytes 10-19/100", "etag": '"f"'}, 10, ObjectChanged),
        (206, {"content-range": "bytes 10-19/100", "content-encoding": "br"}, 10, UnsupportedSource),
        (200, {}, 100, None),
        (200, {}, None, None),
        (200, {}, 99, ObjectChanged),
    ],
)
def test_what_is_believed_of_an_answer(status, headers, length, expected):
    def ask() -> None:
        judge(status, {"etag": '"e"', **headers}, length, OBJ, range(10, 20))

    if expected is None:
        ask()
    else:
        with pytest.raises(expected) as caught:
            ask()
        assert caught.type is expected


def test_an_answer_without_the_etag_that_the_snapshot_has_is_another_version():
    with pytest.raises(ObjectChanged, match="absent"):
        judge(206, {"content-range": "bytes 10-19/100"}, 10, OBJ, range(10, 20))


def test_a_412_that_ossfs_or_s3fs_hides_is_a_changed_object(tmp_path):
    import ossfs
    import s3fs

    (tmp_path / "oss").mkdir()
    with place("oss", tmp_path / "oss") as where:
        where.put("x", BODY)
        filesystem = ossfs.OSSFileSystem(
            endpoint=where.store.url, key=CREDENTIALS[0], secret=CREDENTIALS[1], skip_instance_cache=True
        )
        with pytest.raises(OSError) as caught:
            filesystem._call_oss("get_object", "team/a/x", bucket="bucket", headers={"If-Match": '"other"'})
        assert caught.value.errno == 5
        assert isinstance(from_os_error(caught.value, "read"), ObjectChanged)
    with place("s3", tmp_path) as where:
        where.put("x", BODY)
        filesystem = s3fs.S3FileSystem(
            endpoint_url=where.store.url, key=CREDENTIALS[0], secret=CREDENTIALS[1], skip_instance_cache=True
        )
        with pytest.raises(OSError) as caught:
            filesystem.call_s3("get_object", Bucket="bucket", Key="team/a/x", IfMatch='"other"')
        assert caught.value.errno == 22
        assert isinstance(from_os_error(caught.value, "read"), ObjectChanged)
