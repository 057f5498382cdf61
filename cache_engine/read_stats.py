"""What a reader did, in numbers: bytes by where they came from, and what was passed over on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from cache_engine.fork_lock import ForkLock


@dataclass(slots=True)
class ReadStats:
    """Bytes handed to callers by where they came from, and what went wrong on the way. Guarded by `_lock`."""

    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("local", "cell", "fill", "past", "source"), 0))
    failed_over: int = 0
    """Requests that a worker did not answer and another place did."""
    bad_blocks: int = 0
    """Blocks whose CRC was wrong: never handed to a caller."""
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    def add(self, origin: str, size: int) -> None:
        with self._lock:
            self.bytes[origin] = self.bytes.get(origin, 0) + size

    def copy(self) -> ReadStats:
        """The figures as of now."""
        with self._lock:
            return ReadStats(dict(self.bytes), self.failed_over, self.bad_blocks)

    def since(self, before: ReadStats) -> ReadStats:
        """What came after `before`."""
        bytes_ = {origin: size - before.bytes.get(origin, 0) for origin, size in self.bytes.items()}
        return ReadStats(bytes_, self.failed_over - before.failed_over, self.bad_blocks - before.bad_blocks)

    def total(self) -> int:
        return sum(self.bytes.values())

    def hit_ratio(self) -> float:
        """Share of the bytes that were in a cache when they were asked for."""
        return (self.bytes["local"] + self.bytes["cell"]) / max(1, self.total())
