"""The public names of the ground floor, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cache_engine
from cache_engine import errors
from cache_engine.errors import ControllerUnavailable

HEAVY = ("aiohttp", "fsspec", "fastapi", "pydantic", "uvicorn", "numpy", "asyncio", "ssl", "yaml", "crc32c")


def test_the_public_names_are_open_list_datasets_and_every_error() -> None:
    family = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CacheEngineError)
    }
    assert set(cache_engine.__all__) == family | {"open", "list_datasets"}
    assert all(hasattr(cache_engine, name) for name in cache_engine.__all__)


@pytest.mark.parametrize("module", ["cache_engine", "cache_engine.commands", "prefetch.commands", "prefetch"])
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_without_a_controller_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ControllerUnavailable, match="forebay up"):
        cache_engine.open("birds", api="http://127.0.0.1:9")
    with pytest.raises(ControllerUnavailable, match="forebay up"):
        cache_engine.list_datasets(api="http://127.0.0.1:9")
