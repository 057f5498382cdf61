from __future__ import annotations

import pytest

from cache_engine.sources.translation import retry_after
from cache_engine.sources.versions import demanded, difference, http_seconds, version_of

DATE, SECONDS = "Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000


@pytest.mark.parametrize(
    ("headers", "version", "demand"),
    [
        ({"etag": '"e"', "last-modified": DATE}, 'etag:"e"', {"if-match": '"e"'}),
        ({"etag": 'W/"e@f"', "last-modified": DATE}, f'weak:W/"e@f"@{SECONDS}', {"if-unmodified-since": DATE}),
        ({"etag": 'W/"e"'}, 'weak:W/"e"@0', {}),
        ({"last-modified": DATE}, f"mtime:{SECONDS}000000000", {"if-unmodified-since": DATE}),
        ({"x-amz-version-id": "v1"}, "id:v1", {}),
        (
            {"x-amz-version-id": "null", "last-modified": DATE},
            f"mtime:{SECONDS}000000000",
            {"if-unmodified-since": DATE},
        ),
        ({}, "mtime:0", {}),
    ],
)
def test_a_version_is_read_demanded_and_recognised(headers, version, demand):
    assert version_of(headers)[0] == version
    assert demanded(version) == demand
    assert difference(version, headers) == ""


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        ('etag:"e"', {"etag": '"f"'}),
        ('etag:"e"', {"etag": 'W/"e"'}),
        ('etag:"e"', {}),
        (f'weak:W/"e"@{SECONDS}', {"etag": 'W/"e"'}),
        (f'weak:W/"e"@{SECONDS}', {"etag": 'W/"f"', "last-modified": DATE}),
        (f"mtime:{SECONDS}000000000", {"last-modified": "Tue, 14 Nov 2023 22:13:21 GMT"}),
        (f"mtime:{SECONDS}000000000", {}),
        ("id:v1", {"x-amz-version-id": "v2"}),
    ],
)
def test_another_version_is_recognised(version, headers):
    assert difference(version, headers)


@pytest.mark.parametrize("text", ["", "soon", "Tue, 99 Nov 2023 22:13:20 GMT", "9" * 400])
def test_what_is_no_date_is_none(text):
    assert http_seconds(text) == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("", None), ("soon", None), ("-1", None), (DATE, 20.0), ("9" * 50, None)]
)
def test_retry_after_is_seconds_or_a_date(text, seconds):
    assert retry_after(text, SECONDS - 20) == seconds
