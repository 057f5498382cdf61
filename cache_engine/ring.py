"""Which worker owns what: weighted rendezvous hashing over objects, or over the 64 MiB spans of large ones.

A Ring is a value: a new membership is a new Ring. Every member gets a score for a key and the highest k
own it, so that a member that leaves moves only what it owned, to whoever was next. The weighting is the
logarithmic method of Schindelhauer and Schomaker: weight / -ln(u), with u uniform in (0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from cache_engine.access import Member
from cache_engine.block import SPAN, ObjectId

_MASK = (1 << 64) - 1
_UNIT = 1.0 / (1 << 64)


def ring_key(obj: ObjectId, offset: int) -> int:
    """64 bits for the object (up to one span) or for the span of it that holds byte `offset`.

    Without the version: a new version of an object stays with its owners.
    """
    digest = blake2b(obj.key, digest_size=8, key=obj.source.encode()[-64:]).digest()
    span = offset // SPAN if obj.size > SPAN else 0
    return int.from_bytes(digest, "little") ^ (span * 0x9E3779B97F4A7C15 & _MASK)


def _mixed(x: int) -> int:
    """splitmix64's finaliser: every input bit reaches every output bit."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True)
class Ring:
    """Members and their weights; `owners` says who comes first, second... for a key."""

    seats: tuple[tuple[str, int, int], ...]
    """(member id, 64-bit seed, weight), in order of the ids."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> Ring:
        """A ring over the members' ids and weights; where they answer does not matter."""
        seats = sorted((m.id, _seed(m.id), max(1, m.weight)) for m in members)
        return cls(tuple(seats))

    def ranked(self, key: int) -> list[str]:
        """All member ids, the first owner first."""
        if len(self.seats) == 1:
            return [self.seats[0][0]]
        scores = [
            (weight / -math.log((_mixed(key ^ seed) + 0.5) * _UNIT), member) for member, seed, weight in self.seats
        ]
        scores.sort(reverse=True)
        return [member for _, member in scores]

    def owners(self, obj: ObjectId, offset: int, count: int) -> list[str]:
        """The `count` owners of the bytes of `obj` around `offset`."""
        return self.ranked(ring_key(obj, offset))[:count]


def _seed(member: str) -> int:
    return int.from_bytes(blake2b(member.encode(), digest_size=8).digest(), "little")
