"""The object store as a process of its own, steered over /-/."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.objectstore import ObjectStore, RemoteStore, StoreProcess
from tests.benchmarks.wire import ask


def test_a_store_in_its_own_process_is_steered_from_outside(tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "k").write_bytes(b"file")
    with StoreProcess("s3", root=tmp_path, page=5) as store:
        assert ask(store.url, "GET", "/bucket/k").body == b"file"
        etag = store.put("bucket/a+b c", b"put")
        reply = ask(store.url, "GET", "/bucket/a%2Bb%20c")
        assert (reply.body, reply.headers["etag"]) == (b"put", etag)
        assert store.stat("bucket/a+b c") == {"etag": etag, "size": 3}
        store.rule("status", "GET /bucket/k", times=1, code=503)
        assert ask(store.url, "GET", "/bucket/k").status == 503
        assert [line["status"] for line in store.log()] == [200, 200, 503]
        assert store.stats()["requests"] == 3
        assert store.stats()["rules"][0]["used"] == 1
        store.clear_rules()
        store.reset()
        assert (store.sent, store.stats()["requests"], store.stats()["rules"]) == (0, 0, [])
        assert store.delete("bucket/a+b c")
        assert not store.delete("bucket/a+b c")
    with pytest.raises(OSError):
        ask(store.url, "GET", "/bucket/k")


def test_credentials_reach_the_child_by_its_environment(tmp_path):
    with StoreProcess("http", root=tmp_path, credentials=("me", "secret")) as store:
        with open(f"/proc/{store.pid}/cmdline", "rb") as command:
            assert b"secret" not in command.read()
        assert ask(store.url, "GET", "/").status == 401
        assert ask(store.url, "GET", "/", {"Authorization": "Basic bWU6c2VjcmV0"}).status == 200


def test_what_cannot_be_understood_is_refused_with_a_reason():
    with ObjectStore() as running:
        remote = RemoteStore(running.url)
        with pytest.raises(ValueError, match="not a kind of fault"):
            remote.rule("earthquake")
        with pytest.raises(ValueError, match="no object"):
            remote.stat("nothing")
        assert ask(running.url, "GET", "/-/nothing").status == 400
        assert ask(running.url, "PUT", "/-/put").status == 400
        assert running.log == []


def test_files_that_come_later_are_listed_after_a_rescan(tmp_path):
    (tmp_path / "bucket").mkdir()
    with ObjectStore("s3", root=tmp_path, buckets=["bucket"]) as running:
        (tmp_path / "bucket" / "late").write_bytes(b"x")
        assert b"late" not in ask(running.url, "GET", "/bucket?list-type=2").body
        RemoteStore(running.url).rescan()
        assert b"<Key>late</Key>" in ask(running.url, "GET", "/bucket?list-type=2").body


def test_a_store_ends_with_the_process_that_started_it():
    code = (
        "import os, signal\n"
        "from benchmarks.objectstore import StoreProcess\n"
        "store = StoreProcess()\n"
        "print(store.url, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    url = child.stdout.strip()
    # The orphan notices the end of its stdin at once, yet not before the parent is gone.
    for _ in range(1000):
        try:
            ask(url, "GET", "/")
        except OSError:
            return
    pytest.fail("the store outlived its parent")
