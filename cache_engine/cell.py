"""One cell as its tier knows it in memory: which blocks it holds, who uses it, what it is charged for.

No I/O and no lock here; the table's lock guards every change (`cell_table.py`). Reading `state`, `proved` and
`fd` without it is allowed where a stale answer is harmless: each is one atomic step of the interpreter.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping

from cache_engine.block import BLOCK, ObjectId, block_count, block_length
from cache_engine.policy import Key
from cache_engine.quota import allocated, extents_cost
from cache_engine.voucher import Voucher, length_of

ABSENT, RESERVED, REWRITING, STALE, LEAVING, UNPROVED, PROVED = range(7)
"""What a block can be. Charged are all but ABSENT.
RESERVED: room is taken, nothing written. REWRITING: reserved, and (perhaps partial) bytes are on the disk.
STALE: not usable, its bytes still on the disk. LEAVING: being punched. UNPROVED: vouched for before an unclean
stop, its CRC not compared since. PROVED: usable."""
_PRESENT = bytes([0, 0, 0, 0, 0, 1, 1]) + bytes(249)

NO_LABELS: Mapping[str, bool] = {}


class Cell:
    """The state of one cell; `piece` numbers count runs of `piece_blocks` blocks."""

    __slots__ = (
        "blocks",
        "changes",
        "charged",
        "crcs",
        "dropped",
        "extents",
        "fd",
        "labels",
        "leases",
        "leaving",
        "name",
        "near",
        "obj",
        "on_disk",
        "piece_blocks",
        "pins",
        "present",
        "present_bytes",
        "proved",
        "saved",
        "state",
        "vouched",
        "voucher_room",
    )

    def __init__(self, obj: ObjectId, name: str, piece_blocks: int) -> None:
        self.obj = obj
        self.name = name
        self.blocks = block_count(obj.size)
        self.piece_blocks = piece_blocks
        self.state = bytearray(self.blocks)
        self.crcs = array("I", bytes(4 * self.blocks))
        self.present = 0
        self.proved = 0
        self.present_bytes = 0
        self.labels: Mapping[str, bool] = NO_LABELS  # shared between cells: replaced, never changed
        self.near = False
        self.leases = 0
        self.pins: dict[int, int] = {}  # piece -> leases that asked for a block of it; only cells of several pieces
        self.fd = -1
        self.on_disk = False
        self.charged = 0
        self.voucher_room = 0  # part of `charged`
        self.extents = 0  # part of `charged`
        self.vouched = False  # a voucher lies on the disk
        self.changes = 0
        self.saved = 0  # the value of `changes` that the voucher on the disk has
        self.leaving = False  # being removed as a whole
        self.dropped = False  # no longer in the table; its bytes are charged until the last lease goes

    @property
    def pieces(self) -> int:
        return max(1, -(-self.blocks // self.piece_blocks))

    @property
    def complete(self) -> bool:
        """Every block is vouched for. Such a cell is only ever unlinked, never punched."""
        return self.present == self.blocks

    @property
    def whole(self) -> bool:
        """Leaves as a whole."""
        return self.blocks <= self.piece_blocks or self.complete

    def key(self, piece: int) -> Key:
        return self.name, 0 if self.whole else piece

    def piece_range(self, piece: int) -> range:
        start = piece * self.piece_blocks
        return range(start, min(start + self.piece_blocks, self.blocks))

    def pieces_of(self, blocks: Iterable[int]) -> set[int]:
        if self.blocks <= self.piece_blocks:
            return {0}
        if isinstance(blocks, range) and blocks.step == 1:
            return set(range(blocks.start // self.piece_blocks, -(-blocks.stop // self.piece_blocks)))
        return {block // self.piece_blocks for block in blocks}

    def cost(self, blocks: Collection[int]) -> int:
        """Bytes that these blocks take on the disk."""
        if self.blocks - 1 not in blocks:
            return len(blocks) * BLOCK
        return (len(blocks) - 1) * BLOCK + allocated(self.length(self.blocks - 1))

    def charged_in(self, piece: int) -> int:
        """Bytes of the disk that the blocks of one piece take or have reserved."""
        return self.cost([block for block in self.piece_range(piece) if self.state[block] != ABSENT])

    def fixed_cost(self) -> tuple[int, int]:
        """Bytes of the disk for a full voucher, and for the map of extents."""
        return allocated(length_of(self.obj, self.labels)), extents_cost(self.obj.size)

    def length(self, block: int) -> int:
        return block_length(self.obj.size, block)

    def voucher(self) -> Voucher:
        """A copy of what may be vouched for now."""
        return Voucher(self.obj, bytes(self.state).translate(_PRESENT), self.crcs[:], self.labels)

    def labels_without(self, label: str) -> dict[str, bool]:
        """The other labels, as they are."""
        return {other: near for other, near in self.labels.items() if other != label}

    def __repr__(self) -> str:
        flags = [name for name in ("near", "leaving", "dropped") if getattr(self, name)]
        held = f"{self.present}/{self.blocks} blocks, {self.proved} proved, {self.charged} B, {self.leases} leases"
        return " ".join([f"<Cell {self.name} {held}", *flags]) + ">"
