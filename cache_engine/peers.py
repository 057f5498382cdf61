"""The asking end of the worker protocol: one worker as seen from a reader or from another worker.

The answering end is `server.py`; both speak `wire.py`. Every byte that comes over the wire is summed as it
arrives and compared with the CRC that the worker sent for it before anybody sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from crc32c import crc32c

from cache_engine import wire
from cache_engine.access import Member
from cache_engine.block import BLOCK
from cache_engine.errors import CacheEngineError, CorruptBlock, WorkerUnavailable
from cache_engine.fresh_bytes import fresh_bytes
from cache_engine.http1 import Pool, Response, Timeouts, TransportError

_SMALL = 16 << 10
"""Bytes of a refusal's message that are read."""


class BadBlock(CorruptBlock):
    """A block came over the wire with another CRC than its worker vouches for."""

    def __init__(self, message: str, block: int) -> None:
        super().__init__(message)
        self.block = block


class BrokenOff(WorkerUnavailable):
    """A body of blocks that were still filling ended early: ask once more without `wire.LATE_CRC` to hear why."""


class Peer:
    """One worker, seen from here. Thread-safe; a forked child connects anew."""

    def __init__(self, member: Member, timeouts: Timeouts, connections: int = 64) -> None:
        self.member = member
        self._pool = Pool(member.url, timeouts=timeouts, size=connections)

    def __repr__(self) -> str:
        return f"<Peer {self.member.id} at {self.member.url}>"

    def request(self, method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"") -> Response:
        """A successful response, or the error that the worker reported, or WorkerUnavailable."""
        try:
            response = self._pool.request(method, target, headers, body)
        except TransportError as exc:
            raise WorkerUnavailable(f"worker {self.member.id} at {self.member.url} does not answer: {exc}") from exc
        if response.status < 300:
            return response
        try:
            message = response.read(_SMALL).decode("utf-8", "replace").strip()
        except TransportError as exc:
            raise WorkerUnavailable(f"worker {self.member.id} broke off a refusal: {exc}") from exc
        finally:
            response.close()
        name, later = (response.headers.get(header, "") for header in (wire.ERROR, "retry-after"))
        raise wire.error_named(name, response.status, message or str(response.status), later)

    def get(self, target: str, view: memoryview, start: int, flags: Sequence[str] = ()) -> str:
        """Fill `view` with the bytes from `start` on, each checked; returns where the worker had them.

        `view` holds whole blocks of the object (its end included), or lies inside one block. With `wire.LATE_CRC`
        among the flags a worker that is still filling sends blocks as they land.
        Raises BadBlock, BrokenOff, WorkerUnavailable, or what the worker reports.
        """
        response = self._ranged(target, start, start + len(view), flags)
        late = wire.LATE_CRC in response.headers
        try:
            return self._checked(response, view, start, late)
        except TransportError as exc:
            kind = BrokenOff if late else WorkerUnavailable
            raise kind(f"worker {self.member.id} broke off a body: {exc}") from exc
        finally:
            response.close()

    def _checked(self, response: Response, view: memoryview, start: int, late: bool) -> str:
        """Receive the blocks, each summed while it is hot, and compare with what the worker vouches for."""
        count = max(1, -(-len(view) // BLOCK))
        expected = [] if late else wire.parse_crcs(response.headers.get(wire.CRC, ""))
        if not late and len(expected) != count:
            raise WorkerUnavailable(f"worker {self.member.id} sent {len(expected)} CRCs for {count} blocks")
        got = []
        for number in range(count):
            part = view[number * BLOCK : (number + 1) * BLOCK]
            _fill(response, part, self.member.id)
            got.append(crc32c(part))
            if not late and got[number] != expected[number]:
                raise self._wrong(start // BLOCK + number)
        if late:
            table = bytearray(4 * count)
            _fill(response, memoryview(table), self.member.id)
            for number, crc in enumerate(wire.unpack_crcs(table)):
                if got[number] != crc:
                    raise self._wrong(start // BLOCK + number)
        return response.headers.get(wire.ORIGIN, "cell")

    def _wrong(self, block: int) -> BadBlock:
        return BadBlock(f"block {block} came from worker {self.member.id} with a wrong CRC", block)

    def _ranged(self, target: str, start: int, stop: int, flags: Sequence[str], request_id: str = "") -> Response:
        headers = [("range", f"bytes={start}-{stop - 1}"), *((flag, "1") for flag in flags)]
        if request_id:
            headers.append((wire.REQUEST_ID, request_id))
        response = self.request("GET", target, headers)
        late = 4 * -(-(stop - start) // BLOCK) if wire.LATE_CRC in response.headers else 0
        if response.status != 206 or response.length != stop - start + late:
            response.close()
            raise WorkerUnavailable(
                f"worker {self.member.id} answered {response.status} with {response.length} bytes"
                f" where {stop - start} were asked"
            )
        return response

    def open(self, target: str, start: int, stop: int, flags: Sequence[str] = (), request_id: str = "") -> PeerStream:
        """The same bytes as a Stream of whole blocks, for a worker that fills from this one."""
        response = self._ranged(target, start, stop, flags, request_id)
        return PeerStream(self.member.id, response, start // BLOCK, stop - start)

    def batch(
        self, base: str, indices: Sequence[int], flags: Sequence[str] = ()
    ) -> Iterator[tuple[bytes, str] | CacheEngineError]:
        """For each index in order: (the whole file, checked; where the worker had it), or its error."""
        response = self.request("POST", f"{base}/batch", [(flag, "1") for flag in flags], wire.pack_indices(indices))
        try:
            table = bytearray(wire.rows_length(len(indices)))
            _fill(response, memoryview(table), self.member.id)
            for index, row in zip(indices, wire.unpack_rows(table), strict=True):
                if row.size > BLOCK:
                    raise WorkerUnavailable(f"worker {self.member.id} announces {row.size} bytes in a batch")
                body, view = fresh_bytes(row.size)
                _fill(response, view, self.member.id)
                if row.code in wire.BATCH_ORIGINS:
                    wrong = crc32c(body) != row.crc
                    yield self._bad(index) if wrong else (body, wire.BATCH_ORIGINS[row.code])
                else:
                    yield wire.error_named("", row.code, body.decode("utf-8", "replace"))
        except TransportError as exc:
            raise WorkerUnavailable(f"worker {self.member.id} broke off a batch: {exc}") from exc
        finally:
            response.close()

    def _bad(self, index: int) -> BadBlock:
        return BadBlock(f"file {index} came from worker {self.member.id} with a wrong CRC", 0)

    def call(self, method: str, target: str, body: Any = None) -> Any:
        """A small JSON question: fill, bad block, stats."""
        payload = json.dumps(body).encode() if body is not None else b""
        response = self.request(method, target, [("content-type", "application/json")], payload)
        try:
            return json.loads(response.read(64 << 20) or b"null")
        except (TransportError, ValueError) as exc:
            raise WorkerUnavailable(f"worker {self.member.id} gave no sensible answer to {target}: {exc}") from exc
        finally:
            response.close()

    def close(self) -> None:
        """Drop idle connections; the peer stays usable."""
        self._pool.close()


class PeerStream:
    """A range of whole blocks from another worker, checked block by block as it is read."""

    def __init__(self, member: str, response: Response, block: int, length: int) -> None:
        self._member = member
        self._response = response
        self._crcs = iter(wire.parse_crcs(response.headers.get(wire.CRC, "")))
        self._block = block
        self._left = length

    def readinto(self, buffer: memoryview) -> int:
        view = buffer[: min(len(buffer), self._left, BLOCK)]
        try:
            _fill(self._response, view, self._member)
        except TransportError as exc:
            raise WorkerUnavailable(f"worker {self._member} broke off a body: {exc}") from exc
        if crc32c(view) != next(self._crcs, None):
            raise BadBlock(f"block {self._block} came from worker {self._member} with a wrong CRC", self._block)
        self._block += 1
        self._left -= len(view)
        return len(view)

    def close(self) -> None:
        self._response.close()


def _fill(response: Response, view: memoryview, member: str) -> None:
    if len(view) and response.readinto(view) != len(view):
        raise WorkerUnavailable(f"worker {member} ended a body early")
