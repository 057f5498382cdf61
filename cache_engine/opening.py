"""From a Dataset's name and an environment to an open client: the controller is found, the host's name is known.

`cache_engine.open` is this with the process's own environment; verbs pass the one that they were given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cache_engine.client import Client
from cache_engine.config import ReaderConfig
from cache_engine.control import Control
from cache_engine.discovery import find_control


def open_dataset(name: str, environ: Mapping[str, str], *, api: str | None = None, **options: Any) -> Client:
    """A client at the newest snapshot. `api`: the controller's URL, where not that of the environment.

    Cells of workers whose node is $FOREBAY_NODE (default: the host's name) are read directly.
    `options`: fields of ReaderConfig. Raises NotFound, ControllerUnavailable.
    """
    options.setdefault("node", environ.get("FOREBAY_NODE") or os.uname().nodename)
    caches = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    options.setdefault("shared", os.path.join(caches, "forebay", "manifests"))
    return Client(name, _control(environ, api), ReaderConfig(**options), environ)


def dataset_names(environ: Mapping[str, str], *, api: str | None = None) -> list[str]:
    """The Datasets that the controller knows, sorted. Raises ControllerUnavailable."""
    listed = _control(environ, api).call("GET", "/v1/datasets")
    return sorted(item["metadata"]["name"] for item in listed["items"])


def _control(environ: Mapping[str, str], api: str | None) -> Control:
    return Control(api, origin="named by the caller") if api else find_control(environ)
