"""What fsspec's filesystems say when they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from cache_engine.errors import NotFound, SourceUnavailable
from cache_engine.sources.any_fsspec import FsspecSource


def test_a_filesystem_that_cannot_be_opened_is_the_sources_fault(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="open zip:///gone"):
        list(FsspecSource("zip:///gone", {"fo": str(tmp_path / "gone.zip")}, {}).list())
    with pytest.raises(SourceUnavailable, match="IsADirectoryError"):
        list(FsspecSource("zip:///here", {"fo": str(tmp_path)}, {}).list())
