"""The protocol between a reader and a worker, and between workers: paths, headers, bodies of both ends.

Plain HTTP/1.1. `server.py` answers it, `peers.py` asks. An object is named by Dataset, snapshot digest and its
number in that manifest: short, exact, and free of every question of encoding. People and curl use
`/v1/datasets/NAME/files/PATH` instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cache_engine import errors
from cache_engine.errors import CacheEngineError, InvalidValue

CRC = "x-forebay-crc32c"
"""One CRC32C a block in hex, comma between, of a range of whole blocks; or one, of a range inside a block."""
LATE_CRC = "x-forebay-late-crc"
"""Asked: blocks that are still filling may be sent as they land. Answered: then their CRCs (little-endian uint32, one
a block) follow the bytes at the end of the body, and a body that breaks off has no more to say than that it did."""
HOP = "x-forebay-hop"
"""Present: the asker already tried the owners; the worker asks no other worker."""
HELD = "x-forebay-only-held"
"""Present: answer 404 rather than fetch what is not held."""
EPOCH = "x-forebay-epoch"
"""The membership epoch that the answering worker knows."""
ERROR = "x-forebay-error"
"""Name of the error class of a refusal; its message is the body."""
ORIGIN = "x-forebay-origin"
"""Where the bytes were when the request came: cell, peer or source."""
REQUEST_ID = "x-request-id"

BATCH_FILES = 64
BATCH_BYTES = 4 << 20
"""A batch holds up to 64 files or 4 MiB, whichever comes first; only files of one block or less: a row has one CRC."""
MOST_IN_BATCH = 1024
"""What a worker takes in one batch at the most."""

BATCH_ORIGINS = {0: "cell", 1: "fill", 2: "past"}
"""The code of a row whose body is the file: where its bytes were when the request came."""
_ROW = struct.Struct("<IIQ")

STATUS: dict[type[CacheEngineError], int] = {
    errors.InvalidValue: 400,
    errors.AccessDenied: 403,
    errors.MissingCredential: 403,
    errors.NotFound: 404,
    errors.ObjectChanged: 409,
    errors.UnsupportedSource: 501,
    errors.SourceUnavailable: 502,
    errors.SourceThrottled: 502,
    errors.WorkerUnavailable: 503,
    errors.ControllerUnavailable: 503,
    errors.CorruptBlock: 500,
}
_BY_NAME: dict[str, type[CacheEngineError]] = {kind.__name__: kind for kind in STATUS}
_BY_CODE: dict[int, type[CacheEngineError]] = {
    409: errors.ObjectChanged,
    404: errors.NotFound,
    403: errors.AccessDenied,
    502: errors.SourceUnavailable,
}


def object_path(dataset: str, digest: str, index: int) -> str:
    """The request target of one object of one snapshot."""
    return f"/v1/d/{dataset}/{digest}/{index}"


def status_of(error: CacheEngineError) -> int:
    """The HTTP status for an error: that of the nearest class in the table."""
    return STATUS.get(_nearest(error), 500)


def name_of(error: CacheEngineError) -> str:
    """The class that travels in ERROR: the nearest one that the other end knows."""
    return _nearest(error).__name__


def _nearest(error: CacheEngineError) -> type[CacheEngineError]:
    return next((kind for kind in type(error).__mro__ if kind in STATUS), CacheEngineError)


def error_named(name: str, code: int, message: str, retry_after: str = "") -> CacheEngineError:
    """The error that a worker reported, as the class it was there; WorkerUnavailable for anything unknown."""
    kind = _BY_NAME.get(name) or _BY_CODE.get(code, errors.WorkerUnavailable)
    if kind is errors.SourceThrottled:
        return errors.SourceThrottled(message, float(retry_after) if retry_after.isdecimal() else None)
    return kind(message)


def format_crcs(crcs: Sequence[int]) -> str:
    return ",".join(f"{crc:08x}" for crc in crcs)


def parse_crcs(text: str) -> list[int]:
    """Raises InvalidValue for what is not hex numbers with commas."""
    try:
        return [int(part, 16) for part in text.split(",")] if text else []
    except ValueError as exc:
        raise InvalidValue(f"the worker sent {text[:40]!r} where CRCs were expected") from exc


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One file of a batch: where it was, its CRC32C and its size; or an HTTP status and the size of the message."""

    code: int
    crc: int
    size: int


def pack_crcs(crcs: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(crcs)}I", *crcs)


def unpack_crcs(body: bytes | bytearray) -> list[int]:
    return list(struct.unpack(f"<{len(body) // 4}I", body))


def pack_indices(indices: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(indices)}I", *indices)


def unpack_indices(body: bytes) -> list[int]:
    """Raises InvalidValue where the body is no list of 1 to 1024 numbers."""
    if not body or len(body) % 4 or len(body) > 4 * MOST_IN_BATCH:
        raise InvalidValue(f"a batch names 1 to {MOST_IN_BATCH} files, four bytes each; this has {len(body)} bytes")
    return list(struct.unpack(f"<{len(body) // 4}I", body))


def pack_rows(rows: Iterable[BatchRow]) -> bytes:
    return b"".join(_ROW.pack(row.code, row.crc, row.size) for row in rows)


def unpack_rows(body: bytes | bytearray | memoryview) -> list[BatchRow]:
    return [BatchRow(*row) for row in _ROW.iter_unpack(body)]


def rows_length(count: int) -> int:
    """Bytes of the table of a batch of `count` files."""
    return _ROW.size * count
