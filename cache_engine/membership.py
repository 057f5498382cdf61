"""The workers of a Dataset as one reader sees them: who owns what, who stands on this host, who failed just now.

Replaced whole with a newer access document; below `reader.py`, above `ring.py`, `peers.py` and `local_cells.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cache_engine.access import Access, Member
from cache_engine.block import ObjectId
from cache_engine.config import ReaderConfig
from cache_engine.local_cells import LocalCells
from cache_engine.peers import Peer
from cache_engine.ring import Ring

ORDERS = 1 << 17
"""Files of which a reader remembers whom to ask; all are forgotten at once."""


class Membership:
    """The workers of a Dataset as of one epoch, and who of them is better left alone for a while."""

    def __init__(self, access: Access, config: ReaderConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.access = access
        self.ring = Ring.of(access.members)
        self.members = {m.id: m for m in access.members}
        self._config = config
        self._clock = clock
        self._peers = {m.id: Peer(m, config.timeouts) for m in access.members}
        self._cells = {m.id: LocalCells(m.directory) for m in access.members if self._is_local(m)}
        self._near = next((m for m in access.members if config.node and m.node == config.node), None)
        self._avoid: dict[str, float] = {}
        self._orders: dict[int, list[tuple[str, bool]]] = {}

    def _is_local(self, member: Member) -> bool:
        return self._config.local and bool(self._config.node) and member.node == self._config.node

    def peer(self, member: str) -> Peer:
        return self._peers[member]

    def cells(self, ranked: Sequence[str]) -> list[LocalCells]:
        """Directories on this host that may hold the bytes: an owner's, and the near worker's."""
        names = dict.fromkeys((*ranked[: self.access.owners], self._near.id if self._near else ""))
        return [self._cells[name] for name in names if name in self._cells]

    def candidates(self, ranked: Sequence[str]) -> list[tuple[str, bool]]:
        """(member, whether it is a stand-in that asks nobody else), in the order to ask."""
        owners = list(ranked[: self.access.owners])
        first = [self._near.id] if self._near and self._keeps_near(owners) else []
        rest = [name for name in ranked[len(owners) :] if name not in first]
        order = [(name, False) for name in (*first, *owners)] + [(name, True) for name in rest]
        now = self._clock()
        if self._avoid and max(self._avoid.values()) <= now:
            self._avoid = {}
        return sorted(order, key=lambda item: self._avoid.get(item[0], 0.0) > now)

    def order(self, index: int, obj: Callable[[], ObjectId]) -> list[tuple[str, bool]]:
        """The candidates for a small file by its number; remembered while nobody failed just now."""
        known = None if self._avoid else self._orders.get(index)
        if known is None:
            known = self.candidates(self.ring.owners(obj(), 0, len(self.members)))
            if not self._avoid:
                if len(self._orders) >= ORDERS:
                    self._orders.clear()
                self._orders[index] = known
        return known

    def _keeps_near(self, owners: Sequence[str]) -> bool:
        """Whether this host's worker is asked first: it keeps near copies, and no owner is on this host."""
        here = any(self.members[name].node == self._config.node for name in owners)
        return not here and self.access.near_copies != "never"

    @property
    def has_local(self) -> bool:
        """Whether any worker's cells can be opened directly."""
        return bool(self._cells)

    def failed(self, member: str) -> None:
        self._avoid[member] = self._clock() + self._config.avoid

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
