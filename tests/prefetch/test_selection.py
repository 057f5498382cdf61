"""Which files a few paths mean."""

from __future__ import annotations

import pytest

from cache_engine.errors import InvalidValue, NotFound
from cache_engine.manifest import Manifest
from prefetch.selection import select
from tests.fakes.client import manifest_of

KEYS = [b"a/1.jpg", b"a/b/2.jpg", b"a/b/3.txt", b"c", b"foo", b"foo/bar", b"odd[1].bin", b"z//hidden"]


@pytest.fixture
def manifest() -> Manifest:
    return manifest_of({key: key for key in KEYS})


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (None, KEYS),
        ([], KEYS),
        (["c"], [b"c"]),
        (["a"], [b"a/1.jpg", b"a/b/2.jpg", b"a/b/3.txt"]),
        (["a/b/", "/c"], [b"a/b/2.jpg", b"a/b/3.txt", b"c"]),
        (["a/*.jpg"], [b"a/1.jpg"]),
        (["**/*.jpg", "a"], [b"a/1.jpg", b"a/b/2.jpg", b"a/b/3.txt"]),
        (["foo"], [b"foo", b"foo/bar"]),
        (["odd[1].bin"], [b"odd[1].bin"]),
        (["z"], [b"z//hidden"]),
        (["/"], KEYS),
    ],
)
def test_paths_mean_files_directories_or_patterns(
    manifest: Manifest, paths: list[str] | None, expected: list[bytes]
) -> None:
    assert [manifest.path(index) for index in select(manifest, paths)] == sorted(expected)


@pytest.mark.parametrize("path", ["nope", "a/*.png", "a/1.jpg/x"])
def test_a_path_that_means_nothing_is_an_error(manifest: Manifest, path: str) -> None:
    with pytest.raises(NotFound, match="forebay ls"):
        select(manifest, ["c", path])


def test_a_path_that_cannot_be_is_refused(manifest: Manifest) -> None:
    for path in ("../c", "a//b", "a/**b"):
        with pytest.raises(InvalidValue):
            select(manifest, [path])
