"""The S3 dialect against the real clients: botocore (which boto3 is a shell of), s3fs and obstore."""

from __future__ import annotations

import base64
import datetime

import crc32c
import pytest

from benchmarks.objectstore import ObjectStore
from tests.benchmarks.wire import ask

KEYS = {
    "2026/1///": b"slashes only",
    "2026/1//abc": b"two slashes",
    "2026/1/abc": b"one slash",
    "empty-dir/": b"",
    "foo": b"I am foo",
    "foo/bar": b"I am bar",
    "img/icon (14x13).png": b"icon",
    "q/a b.bin": b"space",
    "q/a%2Bb.bin": b"encoded plus",
    "q/a+b.bin": b"plus",
    "src/Rat\u00a0.txt": b"no-break space",
    "x/<a>&'\"é": b"markup",
}
SORTED = sorted(KEYS, key=str.encode)
PLAIN = [key for key in SORTED if "//" not in key and not key.endswith("/")]
"""The keys that obstore can name: it refuses empty segments."""


@pytest.fixture
def store():
    objects = {f"bucket/{key}": body for key, body in KEYS.items()}
    with ObjectStore("s3", objects, credentials=("id", "secret"), page=3, checksums=True) as running:
        yield running


def boto(store: ObjectStore, secret: str = "secret", **config):
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.config import Config

    settings = Config(retries={"max_attempts": 0}, **({"s3": {"addressing_style": "path"}} | config))
    return session.create_client(
        "s3",
        endpoint_url=store.url,
        aws_access_key_id="id",
        aws_secret_access_key=secret,
        region_name="eu-west-1",
        config=settings,
    )


def s3fs_of(store: ObjectStore, **options):
    s3fs = pytest.importorskip("s3fs")
    options = {"key": "id", "secret": "secret", "endpoint_url": store.url, "skip_instance_cache": True} | options
    return s3fs.S3FileSystem(**options)


@pytest.mark.parametrize("version", ["list_objects_v2", "list_objects"])
def test_botocore_lists_every_key_over_many_pages(store, version):
    pages = boto(store).get_paginator(version).paginate(Bucket="bucket")
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == SORTED
    assert store.count("GET", "bucket") >= len(KEYS) // 3


def test_tokens_travel_percent_encoded_and_a_changed_one_is_refused(store):
    list(boto(store).get_paginator("list_objects_v2").paginate(Bucket="bucket"))
    tokens = [line.target for line in store.log if "continuation-token=" in line.target]
    assert tokens and all("continuation-token=%2B%2F" in target and "%3D" in target for target in tokens)
    client = boto(store)
    with pytest.raises(client.exceptions.ClientError, match="InvalidArgument"):
        client.list_objects_v2(Bucket="bucket", ContinuationToken=" /abc=")


def test_botocore_rolls_up_at_the_delimiter_and_starts_after_a_key(store):
    client = boto(store)
    pages = list(client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Delimiter="/"))
    assert [entry["Key"] for page in pages for entry in page.get("Contents", ())] == ["foo"]
    prefixes = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]
    assert prefixes == ["2026/", "empty-dir/", "foo/", "img/", "q/", "src/", "x/"]
    page = client.list_objects_v2(Bucket="bucket", StartAfter="q/a b.bin", MaxKeys=2)
    assert [entry["Key"] for entry in page["Contents"]] == ["q/a%2Bb.bin", "q/a+b.bin"]
    assert page["IsTruncated"]


def test_botocore_reads_every_key_and_the_wire_carries_one_level_of_encoding(store):
    client = boto(store)
    for key, body in KEYS.items():
        assert client.get_object(Bucket="bucket", Key=key)["Body"].read() == body
    targets = [line.target for line in store.log]
    assert "/bucket/q/a%252Bb.bin" in targets and "/bucket/q/a%2Bb.bin" in targets
    assert "/bucket/src/Rat%C2%A0.txt" in targets


def test_botocore_reads_ranges_of_exactly_one_version(store):
    client = boto(store)
    etag = client.head_object(Bucket="bucket", Key="foo")["ETag"]
    part = client.get_object(Bucket="bucket", Key="foo", Range="bytes=2-3", IfMatch=etag)
    assert (part["Body"].read(), part["ContentRange"]) == (b"am", "bytes 2-3/8")
    store.put("bucket/foo", b"I am new")
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.get_object(Bucket="bucket", Key="foo", Range="bytes=2-3", IfMatch=etag)
    with pytest.raises(client.exceptions.ClientError, match="InvalidRange"):
        client.get_object(Bucket="bucket", Key="foo", Range="bytes=8-")
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket="bucket", Key="nothing")
    with pytest.raises(client.exceptions.NoSuchBucket):
        client.list_objects_v2(Bucket="nothing")


def test_an_object_modified_since_is_refused(store):
    client = boto(store)
    before = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.get_object(Bucket="bucket", Key="foo", IfUnmodifiedSince=before)


def test_botocore_puts_and_deletes(store):
    client = boto(store)
    etag = client.put_object(Bucket="bucket", Key="new k+", Body=b"hello")["ETag"]
    assert client.get_object(Bucket="bucket", Key="new k+", IfMatch=etag)["Body"].read() == b"hello"
    client.delete_object(Bucket="bucket", Key="new k+")
    client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in KEYS]})
    assert client.list_objects_v2(Bucket="bucket")["KeyCount"] == 0
    client.create_bucket(Bucket="second", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["bucket", "second"]


def test_a_sum_is_sent_with_a_whole_object_where_wished(store):
    expected = base64.b64encode(crc32c.crc32c(KEYS["foo"]).to_bytes(4, "big")).decode()
    client = boto(store)
    assert client.head_object(Bucket="bucket", Key="foo", ChecksumMode="ENABLED")["ChecksumCRC32C"] == expected
    assert "ChecksumCRC32C" not in client.head_object(Bucket="bucket", Key="foo")


@pytest.mark.parametrize("payload_signing", [True, False])
def test_the_payload_may_be_signed_or_not(store, payload_signing):
    client = boto(store, s3={"addressing_style": "path", "payload_signing_enabled": payload_signing})
    assert client.get_object(Bucket="bucket", Key="foo")["Body"].read() == KEYS["foo"]
    client.put_object(Bucket="bucket", Key="p", Body=b"payload")
    assert store.shelf.get(b"bucket/p").size == 7


def test_a_wrong_signature_key_or_none_is_refused(store):
    client = boto(store, secret="wrong")
    with pytest.raises(client.exceptions.ClientError, match="SignatureDoesNotMatch"):
        client.get_object(Bucket="bucket", Key="foo")
    assert ask(store.url, "GET", "/bucket/foo").status == 403
    assert {line.status for line in store.log} == {403}


def test_a_signature_holds_for_no_other_target_range_or_body(store):
    boto(store).get_object(Bucket="bucket", Key="foo", Range="bytes=0-1")
    signed = dict(store.log[0].headers)
    assert ask(store.url, "GET", "/bucket/foo", signed).status == 206
    assert ask(store.url, "GET", "/bucket/foo/bar", signed).status == 403
    assert ask(store.url, "GET", "/bucket/foo?versionId=1", signed).status == 403
    assert ask(store.url, "GET", "/bucket/foo", signed | {"x-amz-meta-more": "1"}).status == 403
    assert ask(store.url, "GET", "/bucket/foo", signed, body=b"not empty").status == 400


def test_the_documented_example_signature_is_accepted():
    from benchmarks.objectstore.dialects.s3 import Signature, expected_signature
    from benchmarks.objectstore.request import Request

    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    headers = {
        "host": "examplebucket.s3.amazonaws.com",
        "range": "bytes=0-9",
        "x-amz-content-sha256": empty,
        "x-amz-date": "20130524T000000Z",
    }
    given = Signature.parse(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert expected_signature(Request("GET", "/test.txt", headers), secret, given) == given.signature


def test_a_session_token_is_demanded():
    with ObjectStore("s3", {"bucket/k": b"x"}, credentials=("id", "secret", "token")) as store:
        assert s3fs_of(store, token="token").cat("bucket/k") == b"x"
        with pytest.raises(PermissionError):
            s3fs_of(store).cat("bucket/k")


def test_without_credentials_everybody_may_read():
    with ObjectStore("s3", {"bucket/k": b"x"}) as store:
        assert s3fs_of(store, key=None, secret=None, anon=True).cat("bucket/k") == b"x"


def test_a_host_name_may_carry_the_bucket(store):
    with ObjectStore("s3", {"bucket/foo": b"x"}) as anonymous:
        host = f"bucket.localhost:{anonymous.port}"
        assert ask(anonymous.url, "GET", "/foo", {"Host": host}).body == b"x"
        assert b"<Key>foo</Key>" in ask(anonymous.url, "GET", "/?list-type=2", {"Host": host}).body


def test_an_empty_bucket_is_listed_as_empty():
    with ObjectStore("s3", buckets=["bucket"]) as store:
        assert s3fs_of(store, key=None, secret=None, anon=True).ls("bucket") == []
        assert ask(store.url, "GET", "/other?list-type=2").status == 404


def test_s3fs_finds_and_reads(store):
    fs = s3fs_of(store)
    assert fs.find("bucket") == [f"bucket/{key}" for key in SORTED]
    assert {name: fs.cat_file(f"bucket/{name}") for name in KEYS if name[-1] != "/"}["foo/bar"] == b"I am bar"
    assert fs.cat_file("bucket/q/a%2Bb.bin", start=0, end=7) == b"encoded"
    fs.pipe("bucket/new", b"123")
    assert fs.info("bucket/new")["size"] == 3
    fs.rm("bucket/new")
    assert not fs.exists("bucket/new")


def test_obstore_lists_and_reads_ranges_of_one_version():
    obstore = pytest.importorskip("obstore", reason="obstore is not installed")
    from obstore.store import S3Store

    objects = {f"bucket/{key}": KEYS[key] for key in PLAIN}
    with ObjectStore("s3", objects, credentials=("id", "secret"), page=3) as store:
        client = S3Store(
            "bucket",
            endpoint=store.url,
            access_key_id="id",
            secret_access_key="secret",
            region="eu-west-1",
            client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )
        assert sorted(entry["path"] for page in obstore.list(client) for entry in page) == sorted(PLAIN)
        etag = obstore.head(client, "q/a b.bin")["e_tag"]
        got = obstore.get(client, "q/a b.bin", options={"range": (1, 3), "if_match": etag})
        assert bytes(got.bytes()) == b"pa"
        obstore.put(client, "new/x y", b"xyz")
        assert bytes(obstore.get(client, "new/x y").bytes()) == b"xyz"
