"""Quantities and durations: the only place where "64MiB" or "1h30m" becomes a number, and back.

Quantities follow Kubernetes' words (Ki, Mi, Gi, Ti; k, M, G, T) with an optional B. Always whole bytes.
"""

from __future__ import annotations

import re

from cache_engine.errors import InvalidValue

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_UNITS |= {"ki": KIB, "mi": MIB, "gi": GIB, "ti": 1 << 40, "pi": 1 << 50}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtTpP]i?)?[bB]?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
MAX_BYTES = (1 << 63) - 1


def parse_size(text: str | int) -> int:
    """'10GiB', '500M', '64Mi', 4096 -> bytes. Raises InvalidValue for anything else, also for a part of a byte."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise InvalidValue(f"{text!r} is not a size; write a number of bytes or one like 10GiB, 500M, 64Mi")
    if isinstance(text, int):
        size: float = text
    else:
        match = _QUANTITY.fullmatch(text.strip())
        if not match or len(text) > 32:
            raise InvalidValue(f"{text!r} is not a size; write a number of bytes or one like 10GiB, 500M, 64Mi")
        factor = _UNITS[(match[2] or "").lower()]
        size = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
    if size < 0 or size > MAX_BYTES or size != int(size):
        raise InvalidValue(f"{text!r} is not a size; it must be a whole number of bytes from 0 to 2^63-1")
    return int(size)


def format_size(size: int | float) -> str:
    """Bytes -> '1.5 GiB', three figures at the most, for people; parse_size need not take it back."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    digits = 0 if unit == "B" or value >= 100 else 1
    return f"{value:.{digits}f} {unit}"


def parse_duration(text: str) -> float:
    """'30s', '5m', '1h30m', '250ms' -> seconds. Raises InvalidValue for anything else."""
    if not isinstance(text, str) or len(text) > 32 or not _DURATION.fullmatch(text.strip()):
        raise InvalidValue(f"{text!r} is not a duration; write one like 30s, 5m, 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))


def format_duration(seconds: float) -> str:
    """Seconds -> '250ms', '3.2s', '4m05s', '2h10m', for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s"
    return f"{int(seconds // 3600)}h{int(seconds % 3600 // 60):02d}m"
