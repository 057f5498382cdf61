"""One queue per object."""

import asyncio
import logging
from collections import Counter

import pytest

from dataset_controller.loop import Loop


class Looks:
    """A look that counts, is held while `gate` is closed, and fails as often as it is told."""

    def __init__(self, fails: int = 0, again: float | None = None) -> None:
        self.seen: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.looked = asyncio.Condition()
        self._fails = fails
        self._again = again

    async def __call__(self, name: str) -> float | None:
        async with self.looked:
            self.running[name] += 1
            self.most = max(self.most, self.running[name])
            self.looked.notify_all()
        await self.gate.wait()
        self.running[name] -= 1
        async with self.looked:
            self.seen[name] += 1
            self.looked.notify_all()
        if self.seen[name] <= self._fails:
            raise ValueError(f"look {self.seen[name]} at {name}")
        return self._again

    async def until_running(self, count: int) -> None:
        async with self.looked:
            await asyncio.wait_for(self.looked.wait_for(lambda: self.running.total() >= count), 5)

    async def until(self, name: str, count: int) -> None:
        async with self.looked:
            await asyncio.wait_for(self.looked.wait_for(lambda: self.seen[name] >= count), 5)


async def test_ten_triggers_during_a_look_are_one_more_look() -> None:
    looks = Looks()
    loop = Loop(looks)
    looks.gate.clear()
    loop.trigger("a")
    await looks.until_running(1)
    for _ in range(10):
        loop.trigger("a")
    looks.gate.set()
    await looks.until("a", 2)
    await loop.close()
    assert (looks.seen["a"], looks.most) == (2, 1)


async def test_objects_do_not_wait_for_each_other() -> None:
    looks = Looks()
    loop = Loop(looks)
    looks.gate.clear()
    for name in ("a", "b"):
        loop.trigger(name)
    await looks.until_running(2)
    looks.gate.set()
    await loop.close()
    assert looks.seen == {"a": 1, "b": 1}


async def test_a_look_that_fails_is_repeated_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(fails=2)
    loop = Loop(looks)
    with caplog.at_level(logging.ERROR):
        loop.trigger("a")
        await looks.until("a", 3)
    await loop.close()
    assert [record.message for record in caplog.records] == [
        "looking at a failed, again in 0.1 s",
        "looking at a failed, again in 0.2 s",
    ]
    assert "ValueError: look 1 at a" in caplog.text


async def test_it_looks_again_when_the_look_says_so() -> None:
    looks = Looks(again=0.001)
    loop = Loop(looks)
    loop.trigger("a")
    await looks.until("a", 4)
    await loop.close()


async def test_a_sooner_trigger_wins_over_a_later_one() -> None:
    looks = Looks()
    loop = Loop(looks)
    loop.trigger("a", 1000.0)
    loop.trigger("a", 0.0)
    loop.trigger("a", 1000.0)
    await looks.until("a", 1)
    await loop.close()


async def test_nothing_is_kept_of_objects_that_rest_and_nothing_begins_after_close() -> None:
    looks = Looks()
    loop = Loop(looks)
    loop.trigger("a")
    await looks.until("a", 1)
    await loop.close()
    loop.trigger("b")
    assert repr(loop) == "<Loop 0 objects, 0 looked at>"
