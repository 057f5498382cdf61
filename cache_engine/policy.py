"""The contract of a policy: who leaves a tier first. The shelf of implementations is `policies/`.

A policy is a value of memory: no I/O, no lock of its own (its tier's lock guards it), no clock. It orders keys;
whether a key may leave now (leases, pins, locks of other processes) is the tier's question, so a policy offers
candidates and is told what became of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Key = tuple[str, int]
"""(cell name, piece): piece 0 stands for a whole cell that has but one piece, or that is complete."""


class Policy(Protocol):
    """An order of leaving. Near copies always leave before anything owned."""

    def add(self, key: Key, *, near: bool) -> None:
        """A key entered (or, already known, became near or owned); counts as a use."""
        ...

    def touch(self, key: Key) -> None:
        """A key was used. An unknown one is ignored."""
        ...

    def remove(self, key: Key) -> None:
        """A key left. An unknown one is ignored."""
        ...

    def victims(self) -> Iterator[Key]:
        """Every key in the order in which they should leave; the caller changes nothing while it iterates."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: Key) -> bool: ...
