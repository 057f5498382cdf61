"""The path of a read: local cell, owner, next owner, source; whatever fails is passed over, and errors tell why."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from cache_engine import wire
from cache_engine.access import Member
from cache_engine.block import BLOCK
from cache_engine.config import ReaderConfig
from cache_engine.errors import AccessDenied, CacheEngineError, ObjectChanged, WorkerUnavailable
from cache_engine.http1 import Timeouts
from cache_engine.membership import Membership
from cache_engine.sources.retrying import RetryRule
from cache_engine.worker import PEER_TIMEOUTS
from tests.cache_engine.plane import Plane, noise
from tests.cache_engine.wire_server import CLOSE, Request, WireServer, ok

BODY = noise(3 * BLOCK + 9, 1)


def ranked(plane: Plane, name: str = "f") -> list[str]:
    with plane.client() as client:
        obj = client.manifest.object_id(client.index(name))
        return client.reader.membership.ring.owners(obj, 0, len(plane.workers))


def number_of(plane: Plane, worker: str) -> int:
    return [w.config.id for w in plane.workers].index(worker)


def test_an_owner_that_is_down_is_no_error_and_the_next_worker_takes_over(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BODY}, ("a", "b", "c")) as plane:
        plane.workers[number_of(plane, ranked(plane)[0])].stop()
        with plane.client() as client:
            for _ in range(3):
                assert client.read("f") == BODY
            assert client.read_many(["f", "f"]) == [BODY, BODY]
            assert client.stats().failed_over > 0 and client.stats().bytes["source"] == 0


def test_with_all_workers_down_the_source_is_read_where_the_credentials_resolve(tmp_path: Path) -> None:
    mount = {"credentials": {"bearerToken": {"env": "T_TOKEN"}}}
    with Plane(tmp_path, {"f": BODY, "s": b"small"}, ("a", "b"), environ={"T_TOKEN": "t"}, mount=mount) as plane:
        with plane.client(source=True) as able, plane.client(source=False) as barred:
            plane.environ.clear()
            with plane.client(source=True) as unable:
                for worker in plane.workers:
                    worker.stop()
                assert able.read("f") == BODY and able.read_many(["s"]) == [b"small"]
                assert able.stats().bytes["source"] == len(BODY) + 5
                with pytest.raises(WorkerUnavailable, match="T_TOKEN"):
                    unable.read("f")
                with pytest.raises(WorkerUnavailable, match="does not answer"):
                    barred.read("f")


def test_the_last_living_worker_answers_where_the_source_cannot_be_read_from_here(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BODY}, tuple("abcdef")) as plane:
        last = ranked(plane)[-1]
        for worker in plane.workers:
            if worker.config.id != last:
                worker.stop()
        with plane.client() as client:
            assert client.read("f") == BODY
            assert client.read_many(["f"]) == [BODY]


def test_workers_without_the_credential_are_passed_over_for_the_readers_own(tmp_path: Path) -> None:
    mount = {"credentials": {"bearerToken": {"env": "T_TOKEN"}}}
    with Plane(tmp_path, {"f": BODY, "s": b"small"}, ("a", "b"), mount=mount) as plane:
        with plane.client(source=True) as client, pytest.raises(AccessDenied, match="T_TOKEN"):
            client.read("f")
        plane.environ["T_TOKEN"] = "t"
        with plane.client(source=True) as client:
            assert client.read("f") == BODY and client.read_many(["s"]) == [b"small"]


def test_bytes_cached_by_an_earlier_life_need_no_credential(tmp_path: Path) -> None:
    mount = {"credentials": {"bearerToken": {"env": "T_TOKEN"}}}
    with Plane(tmp_path, {"f": BODY}, environ={"T_TOKEN": "t"}, mount=mount) as plane:
        with plane.client() as client:
            assert client.read("f") == BODY
        plane.environ.clear()
        plane.restart(0)
        plane.publish()
        with plane.client() as client:
            assert client.read("f") == BODY


def test_a_second_owner_that_holds_the_old_version_is_found_when_the_first_says_changed(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BODY}, ("a", "b", "c"), owners=2) as plane:
        second = number_of(plane, ranked(plane)[1])
        answer = plane.http(second).request("GET", plane.target("f"), [("range", f"bytes=0-{len(BODY) - 1}")])
        assert answer.read(1 << 30) == BODY
        first = plane.workers[number_of(plane, ranked(plane)[0])]
        for obj, _ in list(first.worker.tier.objects("uid-d")):
            first.worker.tier.drop(obj)
        plane.put({"f": noise(len(BODY), 2)})
        with plane.client(source=True) as client:
            assert client.read("f") == BODY


def test_a_changed_object_that_nobody_holds_is_said_to_be_changed(tmp_path: Path) -> None:
    with Plane(tmp_path, {"f": BODY, "s": b"one"}, ("a", "b", "c")) as plane:
        plane.put({"f": noise(len(BODY), 2), "s": b"two"})
        with plane.client(source=True) as client:
            with pytest.raises(ObjectChanged, match="f"):
                client.read("f")
            with pytest.raises(ObjectChanged, match="s"):
                client.read_many(["s"])


@pytest.mark.case("B27")
def test_a_worker_that_comes_back_at_another_address_is_found_and_no_read_fails(tmp_path: Path) -> None:
    files = {f"f{n}": noise(BLOCK + n, n) for n in range(12)}
    with Plane(tmp_path, files, ("a", "b", "c")) as plane:
        stop = threading.Event()
        rounds = [0] * 4

        def read(number: int) -> None:
            with plane.client() as client:
                while not stop.is_set():
                    for name, body in files.items():
                        assert client.read(name) == body
                    assert client.read_many(list(files)) == list(files.values())
                    rounds[number] += 1

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(read, number) for number in range(4)]
            try:
                for number in (0, 1):
                    old = plane.workers[number].url
                    assert plane.restart(number).url != old
                    plane.publish()
                    back = plane.workers[number]
                    while not back.stats()["bytes"]["cell"]:  # the new address is used, and what lay there before
                        assert not any(job.done() for job in jobs)
                        plane.beat(2, 1)
            finally:
                stop.set()
            for job in jobs:
                job.result()
        assert all(rounds)


def test_a_worker_that_dies_in_the_middle_of_a_body_is_passed_over_where_it_stood(tmp_path: Path) -> None:
    """The owner is a script that sends one good block of three and cuts; the worker beside the reader goes on alone."""
    crcs = [crc32c(BODY[n * BLOCK : (n + 1) * BLOCK]) for n in range(4)]

    def answer(request: Request):
        head = f"{wire.CRC}: {wire.format_crcs(crcs)}"
        whole = ok(BODY, head, status="206 Partial Content")
        yield whole[: len(whole) - len(BODY) + BLOCK + 1000]
        yield CLOSE

    with Plane(tmp_path, {"f": BODY}, ("a",)) as plane, WireServer(answer) as broken:
        access = plane.control.access("d")
        names = [f"broken-{n}" for n in range(10_000)]  # w0 may have a high score of its own
        with plane.client() as client:
            obj = client.manifest.object_id(0)
        for name in names:
            members = (*access.members, Member(name, broken.url, "elsewhere", "/nowhere"))
            if Membership(replace(access, members=members), client.config).ring.owners(obj, 0, 1) == [name]:
                break
        plane.control.publish(replace(access, members=members))
        plane.beat()
        with plane.client(node="a") as client:
            assert client.read("f") == BODY
            assert client.stats().failed_over == 0, "the reader's own worker went on by itself"
        assert plane.blocks_read("f") == [1, 2, 3], "the block that came is not read again"


@pytest.mark.parametrize(
    "says",
    [
        b"garbage\r\n\r\n",
        ok(b"no ranges here"),
        ok(b"x", f"{wire.CRC}: 00000000", status="206 Partial Content"),
        ok(b"x", f"{wire.CRC}: zz", status="206 Partial Content"),
        ok(b"x", f"{wire.CRC}: ", status="206 Partial Content"),
        ok(b"no", f"{wire.ERROR}: Unheard", status="418 Teapot"),
        ok(b"no", f"{wire.ERROR}: AccessDenied", status="403 Forbidden"),
        ok(b"no", f"{wire.ERROR}: InvalidValue", status="400 Bad"),
        ok(b"no", f"{wire.ERROR}: UnsupportedSource", status="501 No"),
        ok(b"no", f"{wire.ERROR}: ControllerUnavailable", status="503 No"),
        ok(b"no", status="413 Large"),
        CLOSE,
    ],
)
def test_a_worker_that_talks_nonsense_is_passed_over(tmp_path: Path, says: bytes) -> None:
    with Plane(tmp_path, {"f": b"x"}) as plane, WireServer(lambda _: [says, CLOSE]) as mad:
        access = plane.control.access("d")
        member = replace(access.members[0], url=mad.url)
        plane.control.publish(replace(access, members=(member,)))
        with plane.client(source=True) as client:
            assert client.read("f") == b"x"
            assert client.read_many(["f"]) == [b"x"]
            assert client.stats().bytes["source"] == 2
        with plane.client() as client, pytest.raises(CacheEngineError):
            client.read("f")


def test_whoever_waits_for_a_worker_waits_longer_than_the_worker_for_its_source() -> None:
    """Else a hung source looks like a lost worker, and every worker in turn asks the source again."""
    source = RetryRule().total + Timeouts().first_byte
    assert source < ReaderConfig().timeouts.first_byte
    assert source < PEER_TIMEOUTS.first_byte
