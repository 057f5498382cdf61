"""The ring: who owns what, and how little moves when a member comes or goes."""

from __future__ import annotations

from collections import Counter

import pytest

from cache_engine.access import Member
from cache_engine.block import SPAN, ObjectId
from cache_engine.ring import Ring


def members(*weights: int) -> list[Member]:
    return [Member(f"w{n}", f"http://127.0.0.1:{n}", "host", f"/d{n}", weight) for n, weight in enumerate(weights)]


def objects(count: int) -> list[ObjectId]:
    return [ObjectId("s3://b/p", b"file-%d" % n, 'etag:"x"', 1000) for n in range(count)]


def test_every_member_owns_its_share_by_weight() -> None:
    ring = Ring.of(members(1, 1, 2))
    owned = Counter(ring.owners(obj, 0, 1)[0] for obj in objects(8000))
    assert owned["w0"] == pytest.approx(2000, rel=0.1)
    assert owned["w1"] == pytest.approx(2000, rel=0.1)
    assert owned["w2"] == pytest.approx(4000, rel=0.1)


def test_a_member_that_leaves_moves_only_what_it_owned_and_to_the_next_in_rank() -> None:
    before, after = Ring.of(members(1, 1, 1, 1)), Ring.of(members(1, 1, 1, 1)[:3])
    for obj in objects(2000):
        old = before.owners(obj, 0, 2)
        new = after.owners(obj, 0, 1)
        assert new[0] == (old[1] if old[0] == "w3" else old[0])


def test_a_new_address_of_a_member_moves_nothing() -> None:
    here = members(1, 1, 1)
    there = [Member(m.id, "http://127.0.0.1:9", m.node, m.directory, m.weight) for m in here]
    assert Ring.of(here) == Ring.of(there)


def test_a_new_version_of_an_object_stays_with_its_owners() -> None:
    ring = Ring.of(members(1, 1, 1))
    for obj in objects(50):
        newer = ObjectId(obj.source, obj.key, 'etag:"y"', 1000)
        assert ring.owners(obj, 0, 3) == ring.owners(newer, 0, 3)


def test_a_large_object_is_owned_span_by_span_and_a_small_one_whole() -> None:
    ring = Ring.of(members(1, 1, 1))
    large = ObjectId("s3://b", b"large", 'etag:"x"', 100 * SPAN)
    spans = [ring.owners(large, n * SPAN, 1)[0] for n in range(100)]
    assert min(Counter(spans).values()) > 15
    assert all(ring.owners(large, n * SPAN + SPAN - 1, 1)[0] == owner for n, owner in enumerate(spans))
    exact = ObjectId("s3://b", b"exact", 'etag:"x"', SPAN)
    assert ring.owners(exact, 0, 1) == ring.owners(exact, SPAN - 1, 1)


def test_k_owners_are_distinct_and_at_most_all_members() -> None:
    ring = Ring.of(members(1, 5, 1))
    for obj in objects(100):
        assert sorted(ring.owners(obj, 0, 9)) == ["w0", "w1", "w2"]
