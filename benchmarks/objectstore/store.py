"""The object store: a listener, a shelf, a dialect and a script of faults, in this process and on loopback."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from benchmarks.objectstore.answer import Answer
from benchmarks.objectstore.connection import Connection, Terms
from benchmarks.objectstore.control import control
from benchmarks.objectstore.dialect import Credentials, DialectConfig
from benchmarks.objectstore.dialects import DIALECTS
from benchmarks.objectstore.faults import KINDS, Call, Rule, Script
from benchmarks.objectstore.objects import Content, Shelf, StoredObject, as_key
from benchmarks.objectstore.request import Request
from benchmarks.objectstore.tally import Tally


class ObjectStore:
    """A store for tests and benchmarks; a context manager, ready as soon as it is made.

    `objects`: BUCKET/KEY (http: any path) -> bytes, text, a path, or (size, f(offset, n) -> bytes); `root`: a
    directory whose files are objects too; `buckets`: names that exist though empty; `credentials`: (id, secret) or
    (id, secret, session token), None lets everybody in; `first_byte` seconds before each answer; `rate` bytes a
    second and connection; `page` keys in a listing's page. Everything else is in `DialectConfig`.
    """

    def __init__(
        self,
        dialect: str = "http",
        objects: Mapping[str | bytes, Content] | Mapping[str, Content] | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        buckets: Iterable[str] = (),
        credentials: tuple[str, ...] | None = None,
        first_byte: float = 0.0,
        rate: float | None = None,
        page: int = 1000,
        checksums: bool = False,
        port: int = 0,
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"{dialect!r} is not a dialect; there are {', '.join(DIALECTS)}")
        self.shelf = Shelf(root)
        for bucket in buckets:
            self.shelf.add_bucket(as_key(bucket))
        for key, content in (objects or {}).items():
            self.put(key, content)
        self.name = dialect
        self.script = Script()
        self.tally = Tally()
        known = Credentials(*credentials) if credentials else None
        self.dialect = DIALECTS[dialect](DialectConfig(self.shelf, known, page, checksums=checksums))
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}  # guarded by _lock
        self._closing = False  # guarded by _lock
        self._terms = Terms(self._decide, self._control, self.tally, first_byte, rate, time.monotonic())
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._acceptor = threading.Thread(target=self._accept, name=f"objectstore {self.port}", daemon=True)
        self._acceptor.start()

    def __repr__(self) -> str:
        return f"<ObjectStore {self.name} at {self.url}: {self.tally!r}, {self.script!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every connection and thread. Idempotent."""
        with self._lock:
            self._closing = True
            left = dict(self._connections)
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass  # closed before
        self._acceptor.join()
        self._listener.close()
        for connection, thread in left.items():
            connection.drop()
            thread.join()

    # -- objects ------------------------------------------------------------------------------------------------

    def put(
        self,
        key: str | bytes,
        body: Content,
        etag: str | None = None,
        headers: Mapping[str, str] | None = None,
        mtime: float | None = None,
    ) -> StoredObject:
        """Put or replace an object; `etag` with its quotes; `headers` are sent with every good answer about it."""
        stored = StoredObject.of(body, etag, mtime, headers)
        self.shelf.put(as_key(key), stored)
        return stored

    def delete(self, key: str | bytes) -> bool:
        return self.shelf.delete(as_key(key))

    # -- faults -------------------------------------------------------------------------------------------------

    def rule(self, kind: str, match: str = "GET *", times: int | None = None, after: int = 0, **args: Any) -> Rule:
        """Add a line to the fault script; the kinds and their arguments are in `faults.py`."""
        return self.script.add(Rule(kind, match, times, after, args))

    def clear_rules(self) -> None:
        self.script.clear()

    # -- what happened ------------------------------------------------------------------------------------------

    @property
    def log(self) -> list[Request]:
        """The requests so far in the order of their arrival."""
        return self.tally.log()

    @property
    def sent(self) -> int:
        """Body bytes that left, over all answers."""
        return self.tally.sent

    def count(self, method: str | None = None, contains: str = "", status: int | None = None) -> int:
        """How many requests of the log have that method, that piece of raw target and that status."""
        return sum(
            method in (None, request.method) and contains in request.target and status in (None, request.status)
            for request in self.log
        )

    def stats(self) -> dict[str, Any]:
        """The counters, and the rules with what became of them."""
        rules = [
            {"number": r.number, "kind": r.kind, "match": r.match, "seen": r.seen, "used": r.used, **_plain(r.args)}
            for r in self.script.rules()
        ]
        return {**self.tally.snapshot(), "rules": rules}

    def reset(self) -> None:
        """Forget the log and begin all counts anew; objects and rules stay."""
        self.tally.reset()

    # -- threads ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # closing
            connection = Connection(sock, self._terms)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            with self._lock:
                if self._closing:
                    sock.close()
                    return
                self._connections[connection] = thread
                thread.start()

    def _run(self, connection: Connection) -> None:
        connection.run()
        with self._lock:
            self._connections.pop(connection, None)

    def _control(self, request: Request) -> Answer:
        return control(self, request)

    def _decide(self, request: Request) -> Answer:
        refused = self.dialect.refuse(request)
        if refused is not None:
            return refused
        rule = self.script.pick(request.line)
        if rule is None:
            return self.dialect.answer(request)
        key = self.dialect.key(request)
        return KINDS[rule.kind](Call(request, rule, self.dialect, self.shelf, self.script, key))


def _plain(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if isinstance(value, str | int | float | list | tuple)}
