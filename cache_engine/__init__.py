"""The ground floor: sources, snapshots, cells, workers and the reader of a Dataset. No Kubernetes, no torch."""

from __future__ import annotations

import os
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
    ReadOnlyDataset,
    SourceThrottled,
    SourceUnavailable,
    UnsupportedSource,
    WorkerUnavailable,
)

if TYPE_CHECKING:
    from cache_engine.client import Client

__all__ = [
    "AccessDenied",
    "CacheEngineError",
    "ControllerUnavailable",
    "CorruptBlock",
    "InvalidValue",
    "MissingCredential",
    "NotFound",
    "ObjectChanged",
    "ReadOnlyDataset",
    "SourceThrottled",
    "SourceUnavailable",
    "UnsupportedSource",
    "WorkerUnavailable",
    "list_datasets",
    "open",
]


def open(name: str, *, api: str | None = None, **options: Any) -> Client:
    """Dataset `name` for reading, at its newest snapshot. Close it, or use it in a `with`.

    `api`: the controller's URL; default $FOREBAY_API, else that of this machine's `forebay up`.
    `options`: fields of `config.ReaderConfig`, such as local=False. Raises NotFound, ControllerUnavailable.
    """
    from cache_engine.opening import open_dataset

    return open_dataset(name, os.environ, api=api, **options)


def list_datasets(*, api: str | None = None) -> list[str]:
    """The names of the Datasets that the controller knows, sorted. Raises ControllerUnavailable."""
    from cache_engine.opening import dataset_names

    return dataset_names(os.environ, api=api)
