"""Listings: whole, fresh, bounded, and never mistaken for one another."""

from __future__ import annotations

import pytest

from cache_engine.block import ObjectId
from cache_engine.errors import AccessDenied, MissingCredential, NotFound, SourceUnavailable
from cache_engine.sources import SOURCES
from tests.cache_engine.wire_server import WireServer, ok
from tests.contracts.places import Place, everything_said, fetch, identify, listed, place


@pytest.mark.case("A24")
def test_a_refused_listing_is_denied_and_not_empty(bucket: Place):
    bucket.put("x", b"x")
    bucket.store.rule("deny_listing")
    with pytest.raises(AccessDenied):
        listed(bucket.open())


@pytest.mark.case("A24")
def test_a_refused_stat_says_that_the_key_may_not_exist(bucket: Place):
    bucket.store.rule("status", match="HEAD *", code=403, body_code="AccessDenied")
    with pytest.raises(AccessDenied, match="does not exist"):
        bucket.open().stat(b"absent")


def test_an_empty_place_lists_nothing_and_a_missing_bucket_is_not_found(bucket: Place):
    assert listed(bucket.open()) == {}
    bucket.url = bucket.url.replace("bucket", "no-such-bucket")
    with pytest.raises(NotFound):
        listed(bucket.open())


def test_a_broken_listing_is_neither_empty_nor_short(bucket: Place):
    bucket.put("x", b"x")
    source = bucket.open_bare()
    bucket.store.rule("cut_body", times=1, send=100)
    with pytest.raises(SourceUnavailable):
        listed(source)
    bucket.store.rule("status", times=1, code=500)
    with pytest.raises(SourceUnavailable):
        listed(source)
    bucket.store.close()
    with pytest.raises(SourceUnavailable):
        listed(source)


@pytest.mark.case("A28")
@pytest.mark.parametrize("kind", ["s3", "oss"])
def test_a_listing_of_several_pages_is_whole_and_its_tokens_are_encoded(tmp_path, kind):
    with place(kind, tmp_path, page=1000) as where:
        keys = [f"k/{n:05}" for n in range(2500)]
        for key in keys:
            where.put(key, b"")
        assert [key.decode() for key in listed(where.open())] == keys
        pages = [request.target for request in where.store.log if "list-type" in request.target]
        assert len(pages) == 3
        tokens = [part for target in pages for part in target.split("&") if part.startswith("continuation-token=")]
        assert len({token for token in tokens if not token.endswith("=")}) == 2
        assert not any("+" in token or "=" in token.partition("=")[2] for token in tokens)


@pytest.mark.case("A30")
@pytest.mark.parametrize("options", [{"use_listings_cache": "false"}, {"listings_expiry_time": "0"}])
def test_listings_with_the_directory_cache_off_are_the_same(tmp_path, options):
    with place("oss", tmp_path) as where:
        for key in ("a/b", "a/c/d", "e"):
            where.put(key, key.encode())
        assert listed(where.open(**options)) == listed(where.open())


@pytest.mark.case("A30")
def test_an_fsspec_filesystem_without_a_listing_cache_lists_the_same(tmp_path):
    with place("memory", tmp_path) as where:
        for key in ("a/b", "a/c/d", "e"):
            where.put(key, key.encode())
        assert listed(where.open(use_listings_cache="false")) == listed(where.open())


@pytest.mark.case("A34")
def test_looking_up_a_missing_key_asks_little_and_lists_nothing(bucket: Place):
    for n in range(2000):
        bucket.put(f"sibling{n}", b"")
    source = bucket.open()
    for _ in range(10):
        before = len(bucket.store.log)
        with pytest.raises(NotFound):
            source.stat(b"absent")
        assert len(bucket.store.log) - before <= 2
    assert not any("list-type" in request.target or "prefix=" in request.target for request in bucket.store.log)


@pytest.mark.parametrize("scheme", ["s3", "oss"])
@pytest.mark.parametrize("page", [b"<html><p>login</html>", b"<html/>", b'{"a": 1}', b"", b"<ListBucketResult>"])
def test_a_page_that_is_no_listing_is_an_error_and_not_empty(scheme, page):
    with WireServer(lambda request: (ok(page, "Content-Type: text/html"),)) as server:
        row = SOURCES[scheme].load()
        source = row(f"{scheme}://bucket/x", {"endpoint": server.url, "anonymous": "true"}, {})
        with pytest.raises(SourceUnavailable):
            listed(source)


def test_a_truncated_listing_that_does_not_say_where_it_goes_on_is_an_error():
    page = b"<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated></ListBucketResult>"
    with WireServer(lambda request: (ok(page),)) as server:
        source = SOURCES["s3"].load()("s3://bucket/x", {"endpoint": server.url, "anonymous": "true"}, {})
        with pytest.raises(SourceUnavailable, match="truncated"):
            listed(source)


def test_s3_without_any_credentials_says_what_to_give(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    source = SOURCES["s3"].load()("s3://bucket/x", {"endpoint": "http://127.0.0.1:9"}, {})
    with pytest.raises(MissingCredential, match="accessKeyId"):
        listed(source)


def test_s3_credentials_that_cannot_be_renewed_are_a_passing_fault_and_show_nothing(tmp_path, monkeypatch):
    """A program of the user's gives credentials that have expired already."""
    document = '{"Version": 1, "AccessKeyId": "i", "SecretAccessKey": "seeded-3", "Expiration": "2001-01-01T00:00:00Z"}'
    (tmp_path / "given").write_text(document)
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = cat {tmp_path / 'given'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    source = SOURCES["s3"].load()("s3://bucket/x", {"endpoint": "http://127.0.0.1:9", "profile": "p"}, {})
    for ask in (lambda: listed(source), lambda: source.read(ObjectId(source.name, b"k", 'etag:"e"', 3), 0, 3)):
        with pytest.raises(SourceUnavailable) as caught:
            ask()
        assert "expired" in str(caught.value) and "seeded-3" not in everything_said(caught.value)


@pytest.mark.case("A37")
def test_offsets_beyond_4_gib_are_exact(bucket: Place):
    size = 5 * (1 << 30) + 3

    def content(offset: int, count: int) -> bytes:
        return b"".join((at // 8 * 2654435761 & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")[at % 8 : at % 8 + 1]
                        for at in range(offset, offset + count))  # fmt: skip

    bucket.put("huge", (size, content))
    source = bucket.open()
    obj = identify(source, b"huge")
    assert obj.size == size
    for start in ((1 << 31) - 32, (1 << 32) - 32):
        assert fetch(source, obj, start, start + 64) == content(start, 64)
    assert fetch(source, obj, size - 3, size) == content(size - 3, 3)
    ranges = [request.headers["range"] for request in bucket.store.log if "range" in request.headers]
    assert f"bytes={(1 << 32) - 32}-{(1 << 32) + 31}" in ranges and f"bytes={size - 3}-{size - 1}" in ranges
