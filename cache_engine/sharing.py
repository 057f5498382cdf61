"""One client a Dataset and process, for those who come and go: file systems, their copies in other threads.

fsspec keeps an instance for every thread and every set of options, for ever. If each of them opened a client of
its own, descriptors would grow with the threads that a process ever had; so instances share, weakly: the client
closes when the last instance and the last open file that use it are gone.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from cache_engine.reading import OpenDataset

Connect = Callable[..., OpenDataset]
"""`connect(name, api=...)` opens a client at the newest snapshot: `cache_engine.open`, or a test's own."""


class Hold(Protocol):
    """Something that keeps `client` open for as long as it is referred to."""

    @property
    def client(self) -> OpenDataset: ...


class _Shared:
    """A client that closes when nobody refers to this object any more."""

    def __init__(self, client: OpenDataset) -> None:
        self.client = client
        weakref.finalize(self, client.close)

    def __repr__(self) -> str:
        return f"<Shared {self.client!r}>"


_Key = tuple[Connect, str | None, str]


class _Table:
    """The shared clients of this process. Mutable: `clients`, under `lock`; they open and close outside it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: weakref.WeakValueDictionary[_Key, _Shared] = weakref.WeakValueDictionary()

    def after_fork(self) -> None:
        """The child keeps the clients (they are fork-safe) and with them its snapshots; the lock may be held."""
        self.lock = threading.Lock()


_table = _Table()
os.register_at_fork(after_in_child=_table.after_fork)


def share(connect: Connect, name: str, api: str | None) -> Hold:
    """The open client of Dataset `name`, opened now if nobody has it. Raises what `connect` raises."""
    key = (connect, api, name)
    with _table.lock:
        held = _table.clients.get(key)
    if held is not None:
        return held
    opened = _Shared(connect(name, api=api))
    with _table.lock:
        return _table.clients.setdefault(key, opened)


def forget(connect: Connect, name: str, api: str | None) -> None:
    """The next `share` opens anew, at the newest snapshot; who has the old one keeps it."""
    with _table.lock:
        _table.clients.pop((connect, api, name), None)
