"""The shelf of sources: one file an implementation, one table from scheme to implementation, all behind one retry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cache_engine.errors import InvalidValue
from cache_engine.source import Source

__all__ = ["SOURCES", "Row", "check_url", "open_source"]

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,31})://", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation. Imported when first used: the vendors' libraries take up to a second."""

    module: str
    type: str
    available: str = ""
    """A function of the module that raises UnsupportedSource where the extra is missing."""

    def load(self) -> Any:
        return getattr(import_module(self.module), self.type)

    def demand(self) -> None:
        if self.available:
            check: Callable[[], None] = getattr(import_module(self.module), self.available)
            check()


_HTTP = Row("cache_engine.sources.http", "HttpSource")
_FSSPEC = Row("cache_engine.sources.any_fsspec", "FsspecSource")
SOURCES: dict[str, Row] = {
    "file": Row("cache_engine.sources.file", "FileSource"),
    "http": _HTTP,
    "https": _HTTP,
    "s3": Row("cache_engine.sources.s3", "S3Source", "available"),
    "oss": Row("cache_engine.sources.oss", "OssSource", "available"),
    "memory": _FSSPEC,
}
"""Scheme -> implementation. Schemes that are not here are left to fsspec."""


def check_url(url: str, options: Mapping[str, str]) -> None:
    """Whether a mount could be opened, without connecting. Raises InvalidValue, UnsupportedSource."""
    _row(url).load().check(url, options)


def open_source(url: str, options: Mapping[str, str], credentials: Mapping[str, str]) -> Source:
    """The source of a mount; it connects when first asked for something.

    `credentials`: values by the names of `credentials.NAMES`. Raises InvalidValue for a URL or option that is not
    allowed, UnsupportedSource where a package is missing (it says which extra brings it).
    """
    from cache_engine.sources.retrying import RetryingSource

    row = _row(url)
    row.demand()
    return RetryingSource(row.load()(url, options, credentials))


def _row(url: str) -> Row:
    match = _SCHEME.match(url)
    if not match:
        raise InvalidValue(f"{url[:100]!r} is no URL of a source; write one like s3://bucket/prefix or file:///data")
    return SOURCES.get(match[1], _FSSPEC)
