"""The ground floor: sources, snapshots, cells, workers and the reader of a Dataset. No Kubernetes, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    ControllerUnavailable,
    CorruptBlock,
    InvalidValue,
    MissingCredential,
    NotFound,
    ObjectChanged,
    SourceThrottled,
    SourceUnavailable,
    UnsupportedSource,
    WorkerUnavailable,
)

if TYPE_CHECKING:
    from cache_engine.client import Client
    from cache_engine.control import Control

__all__ = [
    "AccessDenied",
    "CacheEngineError",
    "ControllerUnavailable",
    "CorruptBlock",
    "InvalidValue",
    "MissingCredential",
    "NotFound",
    "ObjectChanged",
    "SourceThrottled",
    "SourceUnavailable",
    "UnsupportedSource",
    "WorkerUnavailable",
    "datasets",
    "open",
]


def open(name: str, *, api: str | None = None, **options: Any) -> Client:
    """Dataset `name` for reading, at its newest snapshot. Close it, or use it in a `with`.

    `api`: the controller's URL; default $FOREBAY_API, else that of this machine's `forebay up`.
    `options`: fields of `config.ReaderConfig`, such as local=False. Raises NotFound, ControllerUnavailable.
    """
    import os

    from cache_engine.client import Client
    from cache_engine.config import ReaderConfig

    options.setdefault("node", os.environ.get("FOREBAY_NODE") or os.uname().nodename)
    return Client(name, _control(api), ReaderConfig(**options), os.environ)


def datasets(*, api: str | None = None) -> list[str]:
    """The names of the Datasets that the controller knows, sorted. Raises ControllerUnavailable."""
    listed = _control(api).call("GET", "/v1/datasets")
    return sorted(item["metadata"]["name"] for item in (listed["items"] if isinstance(listed, dict) else listed))


def _control(api: str | None) -> Control:
    import os

    from cache_engine.control import Control
    from cache_engine.discovery import find_control

    return Control(api) if api else find_control(os.environ)
