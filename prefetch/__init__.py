"""What to read before anybody asks for it; so far: warming a Dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefetch.warmup import FailedFile, WarmConfig, WarmReport, warm

__all__ = ["FailedFile", "WarmConfig", "WarmReport", "warm"]


def __getattr__(name: str) -> Any:
    """Import on first use: the command line imports every package to learn its verbs."""
    if name in __all__:
        from prefetch import warmup

        return getattr(warmup, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
