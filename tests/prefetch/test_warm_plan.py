"""Who is asked to hold what: the plan of a warm-up, share by share."""

from __future__ import annotations

import pytest

from cache_engine.access import Member
from cache_engine.block import SPAN, spans_of
from cache_engine.ring import Ring
from cache_engine.sizes import MIB
from prefetch.warm_plan import BATCH_BYTES, BATCH_FILES, Share, plan, shares_of
from tests.fakes.client import Body, manifest_of

RING = Ring.of(Member(name, "http://x", "n", "/d") for name in ("ada", "ben", "cleo"))


def body(size: int) -> Body:
    return Body(size, lambda start, stop: bytes(stop - start))


@pytest.mark.parametrize("owners", [1, 2, 3])
def test_every_file_is_asked_of_exactly_its_owners(owners: int) -> None:
    manifest = manifest_of({b"%d" % i: body(i * 1000) for i in range(500)})
    planned = plan(manifest, range(500), RING, owners)
    found = {(owner, s.index, s.bytes) for owner, batches in planned.items() for b in batches for s in b.shares}
    obj = manifest.object_id
    assert found == {(owner, i, obj(i).size) for i in range(500) for owner in RING.owners(obj(i), 0, owners)}
    assert sum(len(b.shares) for batches in planned.values() for b in batches) == 500 * owners


def test_spans_of_a_large_file_are_shared_among_their_owners() -> None:
    manifest = manifest_of({b"large": body(20 * SPAN + 5)})
    obj = manifest.object_id(0)
    shares = shares_of(obj, RING, 1)
    assert sum(shares.values()) == obj.size and len(shares) == 3
    for owner, size in shares.items():
        assert size == sum(b - a for _, a, b in spans_of(0, obj.size) if RING.owners(obj, a, 1) == [owner])
    assert sum(shares_of(obj, RING, 2).values()) == 2 * obj.size


def test_an_empty_file_is_asked_for_too() -> None:
    planned = plan(manifest_of({b"empty": b""}), [0], RING, 1)
    ((owner, (batch,)),) = planned.items()
    assert batch.shares == (Share(0, 0),) and batch.owner == owner and batch.bytes == 0


def test_batches_end_at_their_files_and_their_bytes() -> None:
    alone = Ring.of([Member("ada", "http://x", "n", "/d")])
    many = plan(manifest_of({b"%d" % i: b"x" for i in range(BATCH_FILES + 1)}), range(BATCH_FILES + 1), alone, 1)
    assert [len(batch.shares) for batch in many["ada"]] == [BATCH_FILES, 1]
    heavy = plan(manifest_of({b"%02d" % i: body(30 * MIB) for i in range(5)}), range(5), alone, 1)
    assert [batch.bytes for batch in heavy["ada"]] == [60 * MIB, 60 * MIB, 30 * MIB]
    assert all(batch.bytes <= BATCH_BYTES for batch in heavy["ada"])


def test_nothing_to_warm_is_no_batch() -> None:
    assert plan(manifest_of({}), [], RING, 1) == {}
