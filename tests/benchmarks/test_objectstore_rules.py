"""The pure part of the object store: ranges, preconditions, pages, tokens, request heads."""

from __future__ import annotations

import pytest

from benchmarks.objectstore.answer import ByteRange, failed_precondition, object_answer, parse_range
from benchmarks.objectstore.dialects.s3 import make_token, read_token
from benchmarks.objectstore.objects import StoredObject, successor
from benchmarks.objectstore.page import ListWish, list_page
from benchmarks.objectstore.request import BadRequest, Request, parse_head, unchunk_aws

STORED = StoredObject.of(b"0123456789", etag='"v1"', mtime=1_000_000_000.5)
BEFORE, AT, LATER = (f"Sun, 09 Sep 2001 01:46:{second} GMT" for second in ("39", "40", "41"))


def request(**headers: str) -> Request:
    return Request("GET", "/b/k", {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=3-", ByteRange(3, 10)),
        ("bytes=3-99", ByteRange(3, 10)),
        ("bytes=-4", ByteRange(6, 10)),
        ("bytes=-99", ByteRange(0, 10)),
        ("bytes=-0", ByteRange(10, 10)),
        ("bytes=10-", ByteRange(0, 0)),
        ("bytes=5-4", None),
        ("bytes=0-1,3-4", None),
        ("bytes=-", None),
        ("lines=0-1", None),
    ],
)
def test_a_range_is_read_as_the_standard_says(header, expected):
    assert parse_range(header, 10) == expected


def test_an_oss_range_outside_the_object_means_the_whole_of_it():
    assert parse_range("bytes=3-99", 10, lenient=True) is None
    assert parse_range("bytes=10-11", 10, lenient=True) is None
    assert parse_range("bytes=3-9", 10, lenient=True) == ByteRange(3, 10)


def test_a_range_of_an_empty_object_cannot_be_satisfied():
    empty = StoredObject.of(b"")
    answer = object_answer(empty, request(range="bytes=0-9"))
    assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */0")
    assert object_answer(empty, request()).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if_match": '"v1"'}, 0),
        ({"if_match": "v1"}, 0),
        ({"if_match": '"v0", "v1"'}, 0),
        ({"if_match": "*"}, 0),
        ({"if_match": '"v2"'}, 412),
        ({"if_match": 'W/"v1"'}, 412),
        ({"if_unmodified_since": BEFORE}, 412),
        ({"if_unmodified_since": AT}, 0),
        ({"if_unmodified_since": "yesterday"}, 0),
        ({"if_match": '"v1"', "if_unmodified_since": BEFORE}, 0),
        ({"if_none_match": '"v1"'}, 304),
        ({"if_none_match": 'W/"v1"'}, 304),
        ({"if_none_match": '"v2"'}, 0),
        ({"if_modified_since": AT}, 304),
        ({"if_modified_since": BEFORE}, 0),
        ({"if_none_match": '"v2"', "if_modified_since": LATER}, 0),
    ],
)
def test_preconditions_are_judged_in_the_standard_order(headers, status):
    assert failed_precondition(STORED, request(**headers)) == status


def test_a_weak_etag_never_matches_if_match():
    weak = StoredObject.of(b"x", etag='W/"v1"')
    assert failed_precondition(weak, request(if_match='W/"v1"')) == 412
    assert failed_precondition(weak, request(if_none_match='W/"v1"')) == 304


def test_if_range_of_another_version_gives_the_whole_object():
    assert object_answer(STORED, request(range="bytes=0-1", if_range='"v1"')).status == 206
    assert object_answer(STORED, request(range="bytes=0-1", if_range='"v2"')).status == 200
    assert object_answer(STORED, request(range="bytes=0-1", if_range=AT)).status == 206


KEYS = [*sorted(b"b/" + key for key in (b"a", b"d/1", b"d/2", b"d/e/3", b"d0", b"z\xff", b"z\xff\xff")), b"c/other"]


def pages(limit: int, **wish: bytes):
    after, keys, prefixes = b"", [], []
    while True:
        page = list_page(KEYS, b"b", ListWish(after=after, limit=limit, **wish))
        assert len(page) <= limit
        keys += page.keys
        prefixes += page.prefixes
        if not page.truncated:
            return keys, prefixes
        after = page.last


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_together_are_the_listing_in_byte_order(limit):
    assert pages(limit) == ([b"a", b"d/1", b"d/2", b"d/e/3", b"d0", b"z\xff", b"z\xff\xff"], [])
    assert pages(limit, delimiter=b"/") == ([b"a", b"d0", b"z\xff", b"z\xff\xff"], [b"d/"])
    assert pages(limit, prefix=b"d/", delimiter=b"/") == ([b"d/1", b"d/2"], [b"d/e/"])
    assert pages(limit, prefix=b"d") == ([b"d/1", b"d/2", b"d/e/3", b"d0"], [])


def test_a_listing_after_a_rolled_up_prefix_leaves_it_out():
    page = list_page(KEYS, b"b", ListWish(delimiter=b"/", after=b"d/"))
    assert (page.keys[0], page.prefixes) == (b"d0", [])


def test_nothing_asked_is_nothing_left():
    page = list_page(KEYS, b"b", ListWish(limit=0))
    assert (len(page), page.truncated) == (0, False)


def test_the_key_after_all_keys_of_a_prefix():
    assert successor(b"a") == b"b"
    assert successor(b"a\xff\xff") == b"b"
    assert successor(b"\xff") is None


def test_a_token_has_every_sign_that_needs_encoding_and_returns_only_unchanged():
    token = make_token(b"a key")
    assert set("+/=") <= set(token)
    assert read_token(token) == b"a key"
    for changed in (token.replace("+", " "), token[:-1], "", "x" + token):
        with pytest.raises(ValueError):
            read_token(changed)


def test_a_target_is_decoded_once_to_bytes():
    head = parse_head("GET /b/a%2Bb+c%2525%FF?prefix=x+y%2B&flag HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2")
    assert head.path == b"/b/a+b+c%25\xff"
    assert head.query == [("prefix", "x y+"), ("flag", "")]
    assert head.headers["x-a"] == "1,2"


def test_an_absolute_target_loses_its_origin():
    assert parse_head("GET http://127.0.0.1:80/b/k?x=1 HTTP/1.1\r\nHost: h").target == "/b/k?x=1"


@pytest.mark.parametrize("head", ["GET /", "GET / HTTP/2", "GET / HTTP/1.1\r\nnonsense", ""])
def test_what_is_not_http_is_refused(head):
    with pytest.raises(BadRequest):
        parse_head(head)


def test_an_aws_chunked_body_is_unpacked():
    assert unchunk_aws(b"3;chunk-signature=x\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n") == b"abcde"
    with pytest.raises(BadRequest):
        unchunk_aws(b"3\r\nabc\r\n")
