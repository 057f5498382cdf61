"""The file of a manifest: a head with magic and format, a JSON header with a CRC, aligned columns after it.

All numbers are little-endian, as they lie in memory on every machine that Forebay runs on. The head gives the
length of the header (bounded), the header gives offset and length of each column; nothing of it is used before it
has been compared with the real size of the file. What the columns mean: `manifest.py`; who fills them:
`manifest_builder.py`. A file is written under a temporary name and renamed, so a reader never sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cache_engine.errors import InvalidValue
from cache_engine.names import parse

MAGIC = b"FBAYMANI"
FORMAT = 1
HEAD = struct.Struct("<8sIII")
"""Magic, format, bytes of the header, its CRC-32."""
HEADER_LIMIT = 16 << 20
"""Bytes of header at the most: some ten thousand mounts."""
ALIGN = 64

CONTENT = {"paths": "B", "ends": "Q", "sizes": "Q", "mtimes": "q", "mounts": "H"}
CONTENT |= {"version_starts": "Q", "version_packed": "B", "versions": "B"}
"""Column -> type of its numbers (array module). These are the manifest; the digest is made of them."""
TREE = dict.fromkeys(("dir_first", "dir_length", "dir_stop", "dir_runs", "dir_runs_stop", "run_first", "run_stop"), "I")
"""The index of directories, made from the paths."""
COLUMNS = {**CONTENT, **TREE}
_WIDTH = {"B": 1, "H": 2, "I": 4, "Q": 8, "q": 8}


@dataclass(frozen=True, slots=True)
class Header:
    """What a manifest says of itself before a column is touched."""

    files: int
    bytes: int
    digest: str
    mounts: tuple[tuple[str, str], ...]
    """(name of the source, shown path of the mount), in the order of the Dataset's mounts."""
    hidden: int
    unshowable: int
    markers: int
    directories: int
    tree_crc: int
    file_bytes: int
    """Of the whole file, so that one cut short is known at once."""
    columns: Mapping[str, tuple[int, int]]
    """Column -> offset and length in bytes."""


def encode_header(header: Header, room: int) -> bytes:
    """Head and header in exactly `room` bytes, filled up with blanks."""
    text = json.dumps(asdict(header), separators=(",", ":")).encode().ljust(room - HEAD.size)
    return HEAD.pack(MAGIC, FORMAT, len(text), zlib.crc32(text)) + text


def aligned(offset: int) -> int:
    """The next offset at which a column may start."""
    return -(-offset // ALIGN) * ALIGN


def open_file(path: str | os.PathLike[str]) -> tuple[Header, mmap.mmap]:
    """The header and the whole file mapped read-only. Raises InvalidValue for anything but a whole manifest.

    OSError where the file cannot be opened at all. Cost: one header, whatever the number of files.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        header = _checked(_read_header(fd, size, path), size, path)
        return header, mmap.mmap(fd, size, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def bad(path: str | os.PathLike[str], why: str) -> InvalidValue:
    """The one error for a manifest that cannot be used."""
    return InvalidValue(f"{os.fspath(path)} is not a usable manifest: {why}; fetch it again or take a new snapshot")


def _read_header(fd: int, size: int, path: str | os.PathLike[str]) -> dict[str, Any]:
    head = os.pread(fd, HEAD.size, 0)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise bad(path, "it does not begin like one")
    _, version, length, crc = HEAD.unpack(head)
    if version != FORMAT:
        raise bad(path, f"it has format {version}, this program reads {FORMAT}")
    if length > min(HEADER_LIMIT, size - HEAD.size):
        raise bad(path, f"its header of {length} bytes does not fit into {size}")
    text = os.pread(fd, length, HEAD.size)
    if len(text) != length or zlib.crc32(text) != crc:
        raise bad(path, "the checksum of its header is wrong")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise bad(path, "its header is not JSON") from fault
    if not isinstance(document, dict):
        raise bad(path, "its header is not a JSON object")
    return document


def _checked(document: Mapping[str, Any], size: int, path: str | os.PathLike[str]) -> Header:
    try:
        counts = {name: _count(document[name]) for name in Header.__dataclass_fields__ if name not in _NOT_COUNTS}
        if counts["file_bytes"] != size:
            raise ValueError(f"the file should have {counts['file_bytes']} bytes, and has {size}")
        columns = {name: _extent(document["columns"][name], size, width) for name, width in COLUMNS.items()}
        header = Header(digest=_digest(document["digest"]), mounts=_mounts(document), columns=columns, **counts)
        for name, count in _counts_expected(header).items():
            if columns[name][1] != count * _WIDTH[COLUMNS[name]]:
                raise ValueError(f"column {name} has {columns[name][1]} bytes, not {count} numbers")
    except (KeyError, TypeError, ValueError) as fault:
        raise bad(path, f"its header is wrong ({fault})") from fault
    return header


_NOT_COUNTS = ("digest", "mounts", "columns")


def _counts_expected(header: Header) -> dict[str, int]:
    """Numbers that a column must hold, where the header tells."""
    segments = -(-header.files >> 16)
    counts = dict.fromkeys(("sizes", "mtimes", "mounts"), header.files)
    counts |= {"ends": header.files + 1, "version_starts": segments + 1, "version_packed": segments}
    counts |= {name: header.directories for name in TREE if name.startswith("dir_")}
    return counts | {"run_stop": header.columns["run_first"][1] // 4}


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a digest")
    return value


def _mounts(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    mounts = tuple((source, path) for source, path in document["mounts"])
    for source, path in mounts:
        if not isinstance(source, str) or not isinstance(path, str):
            raise ValueError(f"{source!r} at {path!r} is not a mount")
        mount_prefix(path)
    return mounts


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 96:
        raise ValueError(f"{value!r} is not a count")
    return value


def _extent(value: Any, size: int, kind: str) -> tuple[int, int]:
    offset, length = map(_count, value)
    if offset < HEAD.size or offset % ALIGN or length % _WIDTH[kind] or offset + length > size:
        raise ValueError(f"a column at {offset} with {length} bytes in a file of {size}")
    return offset, length


def digest_of(mounts: Sequence[tuple[str, str]], sums: Mapping[str, bytes]) -> str:
    """The name of a manifest: SHA-256 over its mounts and the SHA-256 of each column of its content, in hex.

    The columns are in path order and cut at fixed places, so neither the order nor the pages of a listing show.
    """
    whole = hashlib.sha256(json.dumps([FORMAT, [list(mount) for mount in mounts]], separators=(",", ":")).encode())
    for name in CONTENT:
        whole.update(sums[name])
    return whole.hexdigest()


def mount_prefix(path: str) -> bytes:
    """What the shown path of a mount puts before each key. Raises InvalidValue for a path that is not inside."""
    raw = parse(path)
    if raw.endswith(b"/") or raw.startswith(b"/"):
        raise InvalidValue(f"{path!r} is not a path for a mount: no slash at its ends, empty for the root")
    return raw + b"/" if raw else b""
