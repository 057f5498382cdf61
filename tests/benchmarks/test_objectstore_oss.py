"""The OSS dialect against the real clients: oss2 with signatures V1 and V4, and ossfs."""

from __future__ import annotations

import pytest

from benchmarks.objectstore import ObjectStore
from tests.benchmarks.test_objectstore_s3 import KEYS, SORTED
from tests.benchmarks.wire import ask

oss2 = pytest.importorskip("oss2")
ossfs = pytest.importorskip("ossfs")

SHOWN = [key for key in SORTED if "//" not in key]
"""The keys that ossfs can name: it strips slashes at the end and joins two into one."""


@pytest.fixture
def store():
    objects = {f"bucket/{key}": body for key, body in KEYS.items()}
    with ObjectStore("oss", objects, credentials=("id", "secret"), page=3) as running:
        yield running


def bucket(store: ObjectStore, version: str, secret: str = "secret", token: str | None = None):
    if token is not None:
        auth = oss2.StsAuth("id", secret, token, auth_version=version)
    else:
        auth = oss2.make_auth("id", secret, version)
    return oss2.Bucket(auth, store.url, "bucket", region="cn-hangzhou")


both_signatures = pytest.mark.parametrize("version", ["v1", "v4"])


@both_signatures
def test_oss2_lists_by_marker_and_by_token(store, version):
    client = bucket(store, version)
    assert [entry.key for entry in oss2.ObjectIterator(client)] == SORTED
    assert [entry.key for entry in oss2.ObjectIteratorV2(client)] == SORTED
    rolled = list(oss2.ObjectIterator(client, delimiter="/"))
    assert [entry.key for entry in rolled if not entry.is_prefix()] == ["foo"]
    assert [entry.key for entry in rolled if entry.is_prefix()][:2] == ["2026/", "empty-dir/"]
    assert [e.key for e in oss2.ObjectIteratorV2(client, start_after="src/", prefix="src/")] == ["src/Rat\u00a0.txt"]


@both_signatures
def test_oss2_reads_every_key(store, version):
    client = bucket(store, version)
    assert {key: client.get_object(key).read() for key in KEYS} == KEYS
    assert client.head_object("foo").content_length == 8
    assert client.get_object_meta("foo").etag
    assert not client.object_exists("nothing")
    assert client.get_bucket_info().name == "bucket"


@both_signatures
def test_a_wrong_secret_is_refused_also_for_head(store, version):
    client = bucket(store, version, secret="wrong")
    for call in (client.get_object, client.head_object):
        with pytest.raises(oss2.exceptions.SignatureDoesNotMatch):
            call("foo")
    assert ask(store.url, "GET", "/bucket/foo").status == 403


@both_signatures
def test_a_signature_holds_for_no_other_target(store, version):
    bucket(store, version).get_object("foo")
    signed = dict(store.log[0].headers)
    assert ask(store.url, "GET", "/bucket/foo", signed).status == 200
    assert ask(store.url, "GET", "/bucket/foo%2Fbar", signed).status == 403
    assert ask(store.url, "HEAD", "/bucket/foo", signed).status == 403
    assert ask(store.url, "GET", "/bucket/foo", signed | {"x-oss-more": "1"}).status == 403


@both_signatures
def test_a_session_token_is_demanded(version):
    with ObjectStore("oss", {"bucket/k": b"x"}, credentials=("id", "secret", "token")) as store:
        assert bucket(store, version, token="token").get_object("k").read() == b"x"
        with pytest.raises(oss2.exceptions.ServerError):
            bucket(store, version).get_object("k")


def test_a_range_outside_the_object_is_the_whole_of_it_unless_told_otherwise(store):
    client = bucket(store, "v1")
    standard = {"x-oss-range-behavior": "standard"}
    assert client.get_object("foo", byte_range=(2, 99)).status == 200
    part = client.get_object("foo", byte_range=(2, 99), headers=standard)
    assert (part.status, part.read()) == (206, b"am foo")
    assert client.get_object("foo", byte_range=(99, 100)).status == 200
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        client.get_object("foo", byte_range=(99, 100), headers=standard)
    assert caught.value.status == 416


def test_another_version_is_refused(store):
    client = bucket(store, "v1")
    etag = client.head_object("foo").headers["ETag"]
    assert client.get_object("foo", headers={"If-Match": etag}).read() == KEYS["foo"]
    store.put("bucket/foo", b"I am new")
    with pytest.raises(oss2.exceptions.PreconditionFailed):
        client.get_object("foo", headers={"If-Match": etag})
    with pytest.raises(oss2.exceptions.NotModified):
        client.get_object("foo", headers={"If-None-Match": client.head_object("foo").headers["ETag"]})


def test_oss2_puts_and_deletes(store):
    client = bucket(store, "v4")
    client.put_object("new k+", b"hello")
    assert client.get_object("new k+").read() == b"hello"
    client.batch_delete_objects(["new k+", "x/<a>&'\"é"])
    assert not client.object_exists("new k+") and not client.object_exists("x/<a>&'\"é")


def test_ossfs_finds_and_reads_over_the_address_of_the_store():
    objects = {f"bucket/{key}": KEYS[key] for key in SHOWN}
    with ObjectStore("oss", objects, credentials=("id", "secret"), page=3) as store:
        fs = ossfs.OSSFileSystem(endpoint=store.url, key="id", secret="secret", skip_instance_cache=True)
        assert fs.find("bucket") == [f"bucket/{key}" for key in SHOWN]
        assert fs.ls("bucket/q", detail=False) == ["bucket/q/a b.bin", "bucket/q/a%2Bb.bin", "bucket/q/a+b.bin"]
        assert fs.cat_file("bucket/img/icon (14x13).png") == b"icon"
        assert fs.info("bucket/foo/bar")["size"] == 8
        assert fs.exists("bucket/foo") and not fs.exists("bucket/nothing")
        fs.pipe_file("bucket/new", b"123")
        fs.rm("bucket/new")
        assert [entry["name"] for entry in fs.ls("")] == ["bucket"]


def test_a_denied_listing_is_a_permission_error_of_oss2(store):
    store.rule("deny_listing", allow=["bucket/src/"])
    client = bucket(store, "v1")
    with pytest.raises(oss2.exceptions.AccessDenied):
        list(oss2.ObjectIterator(client))
    assert len(list(oss2.ObjectIterator(client, prefix="src/"))) == 1
    assert client.get_object("foo").read() == KEYS["foo"]
