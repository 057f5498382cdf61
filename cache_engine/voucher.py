"""What vouches for a cell: identity, size, labels, which blocks are present, and one CRC32C for each of them.

A voucher is a small file beside its cell, written after the data. Format 1, little-endian:

    magic "FbVo", format u16, zero u16, length u32, size u64, present u32, labels u32, digest 16 bytes  (the head)
    presence bitmap, one bit a block, lowest bit first; one CRC32C u32 for each present block, in order
    lengths of source, key and version, u32 each, then their bytes; for each label: near u8, length u32, bytes
    CRC32C u32 of everything before it

`length` counts the whole file; `digest` is the cell's name, so a voucher under another name vouches for nothing.
Here is only the coding, pure. Whatever is unknown or damaged decodes to None: not cached, never an error.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress

from crc32c import crc32c

from cache_engine.block import ObjectId, block_count

MAGIC = b"FbVo"
FORMAT = 1
_HEAD = struct.Struct("<4sHHIQII16s")
_LENGTHS = struct.Struct("<III")
_LABEL = struct.Struct("<BI")
_U32 = struct.Struct("<I")
_TO_DIGITS = bytes([0x30, 0x31]) + bytes(254)
_TO_FLAGS = bytes(0x31) + b"\x01" + bytes(0xCE)


@dataclass(frozen=True, slots=True)
class Voucher:
    """One cell as vouched for. `present` and `crcs` have one entry a block; labels map to "is a near copy"."""

    obj: ObjectId
    present: bytes
    """One byte a block: 1 present, 0 not."""
    crcs: array[int]
    """CRC32C of each present block; whatever stands for an absent one means nothing."""
    labels: Mapping[str, bool]

    @property
    def complete(self) -> bool:
        return 0 not in self.present


def length_of(obj: ObjectId, labels: Mapping[str, bool]) -> int:
    """The bytes that a voucher of that cell takes at most, with every block present."""
    blocks = block_count(obj.size)
    names = sum(_LABEL.size + len(label.encode()) for label in labels)
    text = len(obj.source.encode()) + len(obj.key) + len(_wire(obj.version))
    return _HEAD.size + (blocks + 7) // 8 + 4 * blocks + _LENGTHS.size + text + names + _U32.size


def encode(voucher: Voucher, name: str) -> bytes:
    """The voucher of the cell `name`, as it lies on the disk."""
    obj, present = voucher.obj, voucher.present
    bitmap = int(present.translate(_TO_DIGITS)[::-1] or b"0", 2).to_bytes((len(present) + 7) // 8, "little")
    crcs = _little(array("I", compress(voucher.crcs, present))).tobytes()
    source, version = obj.source.encode(), _wire(obj.version)
    body = [bitmap, crcs, _LENGTHS.pack(len(source), len(obj.key), len(version)), source, obj.key, version]
    for label, near in voucher.labels.items():
        raw = label.encode()
        body += [_LABEL.pack(near, len(raw)), raw]
    length = _HEAD.size + sum(map(len, body)) + _U32.size
    digest = bytes.fromhex(name)
    head = _HEAD.pack(MAGIC, FORMAT, 0, length, obj.size, len(crcs) // 4, len(voucher.labels), digest)
    unsigned = b"".join((head, *body))
    return unsigned + _U32.pack(crc32c(unsigned))


def decode(raw: bytes, name: str) -> Voucher | None:
    """The voucher of the cell `name`, or None where these bytes do not vouch for it."""
    head = _sound_head(raw, bytes.fromhex(name))
    if head is None:
        return None
    size, present, labels = head
    try:
        voucher = _body(raw, size, present, labels)
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return voucher if voucher is not None and voucher.obj.cell_name == name else None


def single_crc(raw: bytes, digest: bytes, size: int) -> int | None:
    """The CRC of the only block of a one-block object, or None: the least that a reader of small files must know.

    The digest covers source, key, version and size, so the names behind it need not be taken apart.
    """
    head = _sound_head(raw, digest)
    if head is None or head[0] != size or head[1] != 1 or block_count(size) != 1:
        return None
    return int(_U32.unpack_from(raw, _HEAD.size + 1)[0])


def _sound_head(raw: bytes, digest: bytes) -> tuple[int, int, int] | None:
    """(size, present blocks, labels) of a whole, undamaged voucher with that digest."""
    if len(raw) < _HEAD.size + _LENGTHS.size + _U32.size:
        return None
    magic, version, _, length, size, present, labels, named = _HEAD.unpack_from(raw)
    if magic != MAGIC or version != FORMAT or length != len(raw) or named != digest:
        return None
    if crc32c(memoryview(raw)[:-4]) != _U32.unpack_from(raw, length - 4)[0]:
        return None
    return size, present, labels


def _body(raw: bytes, size: int, present: int, labels: int) -> Voucher | None:
    blocks = block_count(size)
    at = _HEAD.size + (blocks + 7) // 8
    if at + 4 * present > len(raw):
        return None
    digits = bin(int.from_bytes(raw[_HEAD.size : at], "little"))[2:].zfill(blocks)[::-1].encode() if blocks else b""
    flags = digits.translate(_TO_FLAGS)
    if len(flags) != blocks or flags.count(1) != present:
        return None
    crcs = _spread(flags, raw[at : at + 4 * present])
    at += 4 * present
    source, key, version = _LENGTHS.unpack_from(raw, at)
    key_at = at + _LENGTHS.size + source
    version_at = key_at + key
    at = version_at + version
    obj = ObjectId(
        sys.intern(raw[key_at - source : key_at].decode()),
        raw[key_at:version_at],
        raw[version_at:at].decode("utf-8", "surrogateescape"),
        size,
    )
    found = {}
    for _ in range(labels):
        near, length = _LABEL.unpack_from(raw, at)
        label_at = at + _LABEL.size
        at = label_at + length
        found[sys.intern(raw[label_at:at].decode())] = bool(near)
    return Voucher(obj, flags, crcs, found) if at == len(raw) - _U32.size else None


def _spread(flags: bytes, packed: bytes) -> array[int]:
    dense = _little(array("I", packed))
    if len(dense) == len(flags):
        return dense
    crcs = array("I", bytes(4 * len(flags)))
    for crc, block in zip(dense, (b for b, flag in enumerate(flags) if flag), strict=True):
        crcs[block] = crc
    return crcs


def _little(words: array[int]) -> array[int]:
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _wire(version: str) -> bytes:
    return version.encode("utf-8", "surrogateescape")
