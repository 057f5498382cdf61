"""Least recently used leaves first; near copies before owned ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from cache_engine.policy import Key


class Lru:
    """Two queues, oldest use in front. An OrderedDict, since a plain dict walks its tombstones at the front."""

    def __init__(self) -> None:
        self._near: OrderedDict[Key, None] = OrderedDict()
        self._owned: OrderedDict[Key, None] = OrderedDict()

    def add(self, key: Key, *, near: bool) -> None:
        self.remove(key)
        (self._near if near else self._owned)[key] = None

    def touch(self, key: Key) -> None:
        if key in self._owned:
            self._owned.move_to_end(key)
        elif key in self._near:
            self._near.move_to_end(key)

    def remove(self, key: Key) -> None:
        self._owned.pop(key, None)
        self._near.pop(key, None)

    def victims(self) -> Iterator[Key]:
        return chain(self._near, self._owned)

    def __len__(self) -> int:
        return len(self._near) + len(self._owned)

    def __contains__(self, key: Key) -> bool:
        return key in self._owned or key in self._near

    def __repr__(self) -> str:
        return f"<Lru near={len(self._near)} owned={len(self._owned)}>"
