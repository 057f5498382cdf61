"""Trying again: the plan of waits, the body that goes on from its break, and the gate."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from cache_engine.block import ObjectId
from cache_engine.errors import AccessDenied, CacheEngineError, ObjectChanged, SourceThrottled, SourceUnavailable
from cache_engine.source import Page, Stat, Stream
from cache_engine.sources.gate import Gate
from cache_engine.sources.ranged import MemoryStream
from cache_engine.sources.retrying import Edge, RetryingSource, RetryRule, wait_before
from cache_engine.sources.translation import BrokenBody
from tests.contracts.places import Place, fetch, identify, listed

BODY = os.urandom(1 << 20)


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self, chance: float = 0.5) -> None:
        self.now, self.waits = 0.0, []
        self.edge = Edge(clock=lambda: self.now, sleep=self.sleep, random=lambda: chance)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class BreakingStream:
    """Gives `good` bytes, then breaks."""

    def __init__(self, content: bytes, good: int) -> None:
        self._content, self._good = MemoryStream(content[:good]), good

    def readinto(self, buffer: memoryview) -> int:
        count = self._content.readinto(buffer)
        if count < len(buffer):
            raise BrokenBody("scripted", count)
        return count

    def close(self) -> None:
        pass


class ScriptedSource:
    """A source in memory that answers the next try as its script says: an error, a number of good bytes, or None."""

    name = "scripted://"

    def __init__(self, *script: CacheEngineError | int | None) -> None:
        self.script = list(script)
        self.asked: list[tuple[int, int]] = []

    def _next(self) -> CacheEngineError | int | None:
        return self.script.pop(0) if self.script else None

    def list(self) -> Iterator[Page]:
        raise NotImplementedError

    def page(self, cursor: int | None) -> tuple[Page, int | None]:
        step = self._next()
        if isinstance(step, CacheEngineError):
            raise step
        number = cursor or 0
        page = Page()
        page.add(b"%d" % number, Stat(1, 'etag:"e"'))
        return page, number + 1 if number < 3 else None

    def stat(self, key: bytes) -> Stat:
        step = self._next()
        if isinstance(step, CacheEngineError):
            raise step
        return Stat(len(BODY), 'etag:"e"')

    def read(self, obj: ObjectId, start: int, stop: int) -> Stream:
        self.asked.append((start, stop))
        step = self._next()
        if isinstance(step, CacheEngineError):
            raise step
        return MemoryStream(BODY[start:stop]) if step is None else BreakingStream(BODY[start:stop], step)

    def close(self) -> None:
        pass


DOWN = SourceUnavailable("down")
OBJ = ObjectId("scripted://", b"x", 'etag:"e"', len(BODY))


def test_the_waits_grow_are_random_and_end():
    rule = RetryRule(tries=5, base=1.0, cap=6.0, total=1000.0)
    assert [wait_before(rule, n, 0.0, DOWN, 1.0) for n in range(1, 6)] == [1, 2, 4, 6, None]
    assert [wait_before(rule, n, 0.0, DOWN, 0.25) for n in range(1, 4)] == [0.25, 0.5, 1.0]
    assert wait_before(rule, 1, 0.0, DOWN, 0.0) == 0


def test_retry_after_is_obeyed_unless_it_is_longer_than_our_patience():
    rule = RetryRule(base=1.0, total=100.0)
    assert wait_before(rule, 1, 0.0, SourceThrottled("slow", 7.0), 0.5) == 7.5
    assert wait_before(rule, 1, 0.0, SourceThrottled("slow", 101.0), 0.0) is None
    assert wait_before(rule, 1, 95.0, SourceThrottled("slow", 7.0), 0.0) is None


def test_a_passing_fault_is_borne_and_a_lasting_one_is_the_last_error():
    hours = Hours()
    source = ScriptedSource(DOWN, DOWN)
    assert RetryingSource(source, edge=hours.edge).stat(b"x").size == len(BODY)
    assert hours.waits == [0.05, 0.1]
    source = ScriptedSource(*[SourceUnavailable(str(n)) for n in range(9)])
    with pytest.raises(SourceUnavailable, match=r"^3$"):
        RetryingSource(source, RetryRule(tries=4), edge=hours.edge).stat(b"x")
    assert len(source.script) == 5


@pytest.mark.parametrize("error", [AccessDenied("no"), ObjectChanged("other")])
def test_an_answer_that_will_not_change_is_not_asked_for_again(error):
    hours = Hours()
    for ask in (lambda s: s.stat(b"x"), lambda s: s.read(OBJ, 0, 10), lambda s: list(s.list())):
        with pytest.raises(type(error)):
            ask(RetryingSource(ScriptedSource(error), edge=hours.edge))
    assert not hours.waits


def test_a_listing_goes_on_from_the_page_that_failed():
    hours = Hours()
    source = RetryingSource(ScriptedSource(None, DOWN, None, DOWN, DOWN), edge=hours.edge)
    assert list(listed(source)) == [b"0", b"1", b"2", b"3"]
    assert len(hours.waits) == 3


@pytest.mark.case("A21")
@pytest.mark.parametrize("step", [1000, 300_000, 1 << 20])
def test_a_body_goes_on_from_its_break_with_nothing_lost_or_doubled(step):
    hours = Hours()
    source = ScriptedSource(700_000, DOWN, 200_000, 0)
    assert fetch(RetryingSource(source, edge=hours.edge), OBJ, step=step) == BODY
    assert source.asked[0][0] == 0 and source.asked[-1] == (900_000, 1 << 20)
    assert len(hours.waits) == 4


def test_a_body_that_always_breaks_ends():
    source = ScriptedSource(*[10] * 100)
    with pytest.raises(BrokenBody):
        fetch(RetryingSource(source, RetryRule(tries=5), edge=Hours().edge), OBJ)
    assert len(source.asked) == 5


@pytest.mark.case("A21")
@pytest.mark.parametrize("rst", [False, True])
def test_a_connection_reset_in_the_middle_of_a_body_is_not_seen(remote: Place, rst):
    remote.put("x", BODY)
    source = RetryingSource(remote.open_bare(), edge=Hours().edge)
    obj = identify(source, b"x")
    remote.store.rule("cut_body", times=2, send=400_000, rst=rst)
    assert fetch(source, obj) == BODY
    assert all("if-match" in request.headers for request in remote.store.log if "range" in request.headers)


def test_an_object_replaced_behind_a_break_is_changed_and_not_joined(remote: Place):
    remote.put("x", BODY)
    source = RetryingSource(remote.open_bare(), edge=Hours().edge)
    obj = identify(source, b"x")
    remote.store.rule("cut_body", times=1, send=400_000)
    stream = source.read(obj, 0, len(BODY))
    stream.readinto(memoryview(bytearray(100_000)))
    remote.put("x", BODY[::-1])
    with pytest.raises(ObjectChanged):
        stream.readinto(memoryview(bytearray(len(BODY))))
    stream.close()


def test_a_range_that_comes_shorter_than_asked_is_completed(remote: Place):
    remote.put("x", BODY)
    source = RetryingSource(remote.open_bare(), edge=Hours().edge)
    obj = identify(source, b"x")
    remote.store.rule("short_range", times=2, less=300_000)
    assert fetch(source, obj) == BODY


@pytest.mark.case("A20")
def test_slow_down_is_borne_by_many_readers_and_fewer_are_let_in(remote: Place):
    remote.put("x", BODY[:10_000])
    hours = Hours()
    lock = threading.Lock()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        with lock:
            waits.append(seconds)

    source = RetryingSource(
        remote.open_bare(), gate=Gate(32), edge=Edge(clock=lambda: hours.now, sleep=sleep, random=lambda: 0.5)
    )
    obj = identify(source, b"x")
    remote.store.rule("status", times=1, code=503, body_code="SlowDown", headers={"Retry-After": "30"})
    remote.store.rule("status", times=5, code=503, body_code="SlowDown")
    good: list[bool] = []
    threads = [threading.Thread(target=lambda: good.append(fetch(source, obj) == BODY[:10_000])) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 32
    assert len(waits) == 6 and sum(wait >= 30 for wait in waits) == 1
    assert remote.store.count("GET", status=503) == 6
    assert source.gate.limit < 32


def test_the_gate_halves_at_most_once_a_second_and_grows_by_one_a_round():
    hours = Hours()
    gate = Gate(16, clock=lambda: hours.now)
    for _ in range(5):
        gate.throttled()
    assert gate.limit == 8
    hours.now = 1.0
    gate.throttled()
    assert gate.limit == 4
    for expected in (4, 4, 4, 5):
        gate.enter()
        gate.leave(good=True)
        assert gate.limit == expected
    for _ in range(10):
        hours.now += 1.0
        gate.throttled()
    assert gate.limit == 1


def test_the_gate_lets_in_no_more_than_its_limit():
    gate = Gate(2)
    inside, most, lock, go = 0, 0, threading.Lock(), threading.Barrier(2)

    def work(_: int) -> None:
        nonlocal inside, most
        gate.enter()
        with lock:
            inside += 1
            most = max(most, inside)
        go.wait(5)
        with lock:
            inside -= 1
        gate.leave(good=True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2 and repr(gate) == "<Gate 0/2 of 2>"


def test_whoever_keeps_every_place_is_told():
    gate = Gate(1, patience=0.01)
    gate.enter()
    with pytest.raises(SourceThrottled, match="no place"):
        gate.enter()


def test_a_place_is_given_back_however_a_read_ends():
    hours = Hours()
    ends: list[Callable[[RetryingSource], object]] = [
        lambda s: fetch(s, OBJ),
        lambda s: s.read(OBJ, 0, 10).close(),
        lambda s: s.stat(b"x"),
    ]
    for script in ([], [DOWN], [5], [AccessDenied("no")]):
        for end in ends:
            source = RetryingSource(ScriptedSource(*script), gate=Gate(3), edge=hours.edge)
            try:
                end(source)
            except AccessDenied:
                pass
            assert repr(source.gate) == "<Gate 0/3 of 3>"
