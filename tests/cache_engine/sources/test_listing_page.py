"""One page of a listing: what is read out of it, and what is no page."""

from __future__ import annotations

import pytest

from cache_engine.errors import SourceUnavailable
from cache_engine.sources.bucket import Place
from cache_engine.sources.listing_page import ListingPage, parse

PLACE = Place("b", b"p/")
NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def item(key: str, etag: str = "&quot;e&quot;", size: str = "3", time: str = "2026-01-02T03:04:05.678Z") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{etag}</ETag><Size>{size}</Size>"
        "<Owner><ID>1</ID><DisplayName>Size</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>"
    )


def page(*parts: str, encoded: bool = True, truncated: str = "false", namespace: str = NAMESPACE) -> bytes:
    encoding = "<EncodingType>url</EncodingType>" if encoded else ""
    inside = f"<Name>b</Name>{encoding}<IsTruncated>{truncated}</IsTruncated>{''.join(parts)}"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult{namespace}>{inside}</ListBucketResult>'.encode()


def read(body: bytes, plus_is_blank: bool = True) -> ListingPage:
    return parse(body, PLACE, what="list s3://b/p/", plus_is_blank=plus_is_blank)


@pytest.mark.parametrize("namespace", ["", NAMESPACE])
def test_the_columns_of_a_page(namespace):
    found = read(page(item("p/a"), item("p/", size="0"), item("p/b/", size="0"), namespace=namespace))
    assert found.page.keys == [b"a", b"b/"]  # without the mount's own marker
    assert (found.page.sizes, found.page.versions) == ([3, 0], ['etag:"e"', 'etag:"e"'])
    assert found.page.mtimes_ns == [1_767_323_045_000_000_000] * 2
    assert (found.truncated, found.token, found.encoded) == (False, None, True)


@pytest.mark.parametrize(
    ("written", "encoded", "plus_is_blank", "key"),
    [
        ("p/a+b%2Bc%20d", True, True, b"a b+c d"),
        ("p/a+b%2Bc%20d", True, False, b"a+b+c d"),
        ("p/a+b%2Bc", False, True, b"a+b%2Bc"),
        ("p/%252B%0A%FF", True, True, b"%2B\n\xff"),
        ("p/&lt;&amp;\u65e5", False, True, "<&\u65e5".encode()),
        ("p//x//", True, True, b"/x//"),
    ],
)
def test_a_key_is_decoded_exactly_as_often_as_its_dialect_encodes_it(written, encoded, plus_is_blank, key):
    assert read(page(item(written), encoded=encoded), plus_is_blank).page.keys == [key]


def test_versions_and_times_that_are_none():
    found = read(
        page(item("p/a", etag="W/&quot;w&quot;", time="never"), item("p/b", etag="", time="2026-01-02T03:04:05"))
    )
    assert found.page.versions[0].startswith('weak:W/"w"') and found.page.versions[1] == "mtime:0"
    assert found.page.mtimes_ns == [0, 1_767_323_045_000_000_000]


def test_where_a_truncated_page_goes_on():
    found = read(page("<NextContinuationToken>a+b/c==%2B</NextContinuationToken>", truncated="true"))
    assert found.truncated and found.token == "a+b/c==%2B"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html><p>login</html>", b"<html><IsTruncated>false</IsTruncated></html>", b'{"a": 1}', b"<ListBucketResult/>",
        page(item("p/a"))[:-30], page(item("p/a"), truncated="maybe"), page(item("p/a", size="many")),
        page("<Contents><Size>1</Size></Contents>"), page("<Contents><Key>p/a</Key></Contents>"),
        page(item("elsewhere/a")),
    ],
)  # fmt: skip
def test_what_is_no_whole_page_is_neither_empty_nor_short(body):
    with pytest.raises(SourceUnavailable):
        read(body)


def test_entities_that_explode_are_refused():
    bomb = '<!ENTITY a0 "' + "ha" * 500 + '">'
    bomb += "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 50}">' for n in range(1, 6))
    body = page(item("p/&a5;")).decode().replace("\n", f"\n<!DOCTYPE x [{bomb}]>", 1).encode()
    with pytest.raises(SourceUnavailable):
        read(body)
