"""The fault script: rules that change what a store says, and the table of their kinds.

A kind is a function of one Call that returns the Answer to send; it may ask `call.serve()` for the right one first.
The first rule that matches a request and is not used up decides alone.
"""

from __future__ import annotations

import fnmatch
import gzip
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.objectstore.answer import Answer
from benchmarks.objectstore.body import FlippedBody, MemoryBody
from benchmarks.objectstore.dialect import Dialect
from benchmarks.objectstore.objects import Content, Shelf, StoredObject
from benchmarks.objectstore.request import Request

FOREVER = 1e9
_numbers = itertools.count(1)


@dataclass(slots=True)
class Rule:
    """One line of the script. `seen`, `used` and `state` change only under the script's lock."""

    kind: str
    match: str = "GET *"
    """A glob over 'METHOD /raw/target' (query included)."""
    times: int | None = None
    """How often it acts; None: always."""
    after: int = 0
    """How many matching requests pass first."""
    args: Mapping[str, Any] = field(default_factory=dict)
    number: int = field(default_factory=lambda: next(_numbers))
    seen: int = 0
    used: int = 0
    state: dict[str, Any] = field(default_factory=dict)

    def takes(self, line: str) -> bool:
        """Count a request that matches; True where the rule acts on it."""
        if not fnmatch.fnmatchcase(line, self.match):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.used >= self.times):
            return False
        self.used += 1
        return True


class Script:
    """The rules of one store, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []  # guarded by _lock

    def __repr__(self) -> str:
        return f"<Script of {len(self._rules)} rules>"

    def add(self, rule: Rule) -> Rule:
        """Raises ValueError for a kind that does not exist."""
        if rule.kind not in KINDS:
            raise ValueError(f"{rule.kind!r} is not a kind of fault; there are {', '.join(sorted(KINDS))}")
        if rule.kind == "flaky":
            seed = rule.args.get("seed", int.from_bytes(os.urandom(4), "big"))
            rule.args = {**rule.args, "seed": seed}
            rule.state["random"] = random.Random(seed)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def rules(self) -> list[Rule]:
        with self._lock:
            return list(self._rules)

    def pick(self, line: str) -> Rule | None:
        """The rule that acts on this request, counted as used."""
        with self._lock:
            return next((rule for rule in self._rules if rule.takes(line)), None)

    def decide(self, rule: Rule, question: Callable[[dict[str, Any]], bool]) -> bool:
        """Ask a pure question of the rule's state while no other request does."""
        with self._lock:
            return question(rule.state)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that a rule acts on."""

    request: Request
    rule: Rule
    dialect: Dialect
    shelf: Shelf
    script: Script
    key: bytes
    """The object's key on the shelf."""

    def arg(self, name: str, default: Any = None) -> Any:
        return self.rule.args.get(name, default)

    def serve(self, *, without: str = "") -> Answer:
        """What the store says without faults; `without`: as if that header had not been sent."""
        headers = {name: value for name, value in self.request.headers.items() if name != without}
        return self.dialect.answer(replace(self.request, headers=headers))

    def error(self, status: int, code: str) -> Answer:
        answer = self.dialect.error(self.request, status, code)
        extra = dict(self.arg("headers", {}))
        if self.arg("retry_after") is not None:
            extra["Retry-After"] = str(self.arg("retry_after"))
        return replace(answer, headers={**answer.headers, **extra})


def status(call: Call) -> Answer:
    """code, body_code, headers: that status instead of an answer (302 with a Location is a redirect)."""
    return call.error(call.arg("code", 503), call.arg("body_code", "Fault"))


def delay(call: Call) -> Answer:
    """seconds: silence first, then the right answer."""
    return replace(call.serve(), delay=call.arg("seconds", 1.0))


def hang(call: Call) -> Answer:
    """seconds: no answer at all; the connection is closed afterwards (or when the store is)."""
    return Answer(0, delay=call.arg("seconds", FOREVER), end="close")


def no_head(call: Call) -> Answer:
    """code, hang: HEAD is not allowed (after so many seconds of silence); other methods are served."""
    if call.request.method != "HEAD":
        return call.serve()
    return replace(call.error(call.arg("code", 405), "MethodNotAllowed"), delay=call.arg("hang", 0.0))


def ignore_range(call: Call) -> Answer:
    """Range is not understood: 200 and the whole object."""
    answer = call.serve(without="range")
    return replace(answer, headers={name: v for name, v in answer.headers.items() if name != "Accept-Ranges"})


def cut_body(call: Call) -> Answer:
    """send, rst: the whole length is announced, `send` bytes go out, the connection is closed (or reset)."""
    return replace(call.serve(), send=call.arg("send", 0), end="reset" if call.arg("rst") else "close")


def short_body(call: Call) -> Answer:
    """send: so many bytes of the announced length, then silence on a connection that stays open."""
    return replace(call.serve(), send=call.arg("send", 0))


def short_range(call: Call) -> Answer:
    """less: a range is answered with so many bytes fewer than asked, and says so."""
    answer = call.serve()
    if answer.status != 206:
        return answer
    length = max(1, answer.length - call.arg("less", 1))
    place = f"bytes {answer.start}-{answer.start + length - 1}/{answer.body.size}"
    return replace(answer, length=length, headers={**answer.headers, "Content-Range": place})


def wrong_content_range(call: Call) -> Answer:
    """shift or value: the right bytes under a Content-Range that names others."""
    answer = call.serve()
    if answer.status != 206:
        return answer
    start = answer.start + call.arg("shift", 1)
    place = call.arg("value") or f"bytes {start}-{start + answer.length - 1}/{answer.body.size}"
    return replace(answer, headers={**answer.headers, "Content-Range": place})


def corrupt(call: Call) -> Answer:
    """at: one bit of the byte at that offset of the object is flipped on its way."""
    answer = call.serve()
    return replace(answer, body=FlippedBody(answer.body, call.arg("at", answer.start)))


def gzip_whole(call: Call) -> Answer:
    """The stored bytes gzipped with Content-Encoding: gzip, whatever was asked; Range is ignored."""
    answer = call.serve(without="range")
    if answer.status != 200:
        return answer
    packed = gzip.compress(bytes(answer.body.read(0, answer.body.size)), mtime=0)
    headers = {**answer.headers, "Content-Encoding": "gzip"}
    return replace(answer, body=MemoryBody(packed), length=len(packed), headers=headers)


def replace_after(call: Call) -> Answer:
    """new, etag: this request is answered from the old object; then the new one stands there."""
    answer = call.serve()
    new: Content = call.arg("new", b"")
    call.shelf.put(call.key, StoredObject.of(new, call.arg("etag")))
    return answer


def deny_listing(call: Call) -> Answer:
    """allow: listings get 403, but for those under one of these prefixes (BUCKET/PREFIX); the rest is served."""
    asked = call.dialect.listing(call.request)
    allowed = tuple(prefix.encode() for prefix in call.arg("allow", ()))
    if asked is None or (allowed and asked.startswith(allowed)):
        return call.serve()
    return call.error(403, "AccessDenied")


def throttle(call: Call) -> Answer:
    """per_second, burst, retry_after, code: more requests a second than that get 503 SlowDown."""
    rate = float(call.arg("per_second", 10))
    burst = float(call.arg("burst", max(1.0, rate)))
    now = time.monotonic()

    def admits(state: dict[str, Any]) -> bool:
        tokens, then = state.get("bucket", (burst, now))
        tokens = min(burst, tokens + (now - then) * rate)
        state["bucket"] = (tokens - 1 if tokens >= 1 else tokens, now)
        return bool(tokens >= 1)

    return call.serve() if call.script.decide(call.rule, admits) else call.error(call.arg("code", 503), "SlowDown")


def flaky(call: Call) -> Answer:
    """share, seed, code, retry_after: that share of the requests, drawn at random, gets 503 SlowDown."""
    share = float(call.arg("share", 0.1))
    hit = call.script.decide(call.rule, lambda state: state["random"].random() < share)
    return call.error(call.arg("code", 503), "SlowDown") if hit else call.serve()


def close_after(call: Call) -> Answer:
    """The right answer, after which the connection is closed unannounced: a stale keep-alive connection."""
    answer = call.serve()
    return replace(answer, end="close", send=answer.length)


def slow(call: Call) -> Answer:
    """rate: the body at so many bytes a second."""
    return replace(call.serve(), rate=float(call.arg("rate", 1e5)))


KINDS: Mapping[str, Callable[[Call], Answer]] = {
    kind.__name__: kind
    for kind in (
        *(status, delay, hang, no_head, ignore_range, cut_body, short_body, short_range, wrong_content_range),
        *(corrupt, gzip_whole, replace_after, deny_listing, throttle, flaky, close_after, slow),
    )
}
