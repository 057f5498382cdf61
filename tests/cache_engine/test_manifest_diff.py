"""What a refresh changes, as dicts would say it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_engine.manifest import Manifest
from cache_engine.manifest_diff import Difference, difference
from cache_engine.source import Stat
from tests.cache_engine.listings import build, plain

LISTINGS = st.dictionaries(
    st.integers(0, 40).map(lambda at: b"%02d" % at),
    st.builds(Stat, st.integers(0, 1), st.sampled_from(["id:1", "id:2"]), st.integers(0, 1)),
)


def paths(manifest: Manifest, numbers: object) -> list[bytes]:
    return [manifest.path(at) for at in numbers]  # type: ignore[attr-defined]


def expected(old: dict[bytes, Stat], new: dict[bytes, Stat]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    def bytes_of(stat: Stat) -> tuple[int, str]:
        return stat.size, stat.version

    changed = [path for path in new if path in old and bytes_of(old[path]) != bytes_of(new[path])]
    return sorted(set(new) - set(old)), sorted(changed), sorted(set(old) - set(new))


def told(old: Manifest, new: Manifest) -> tuple[list[bytes], list[bytes], list[bytes]]:
    found = difference(old, new)
    return paths(new, found.added), paths(new, found.changed), paths(old, found.gone)


@settings(max_examples=100, deadline=None)
@given(LISTINGS, LISTINGS)
def test_a_difference_is_what_dicts_say(
    tmp_path_factory: pytest.TempPathFactory, before: dict[bytes, Stat], after: dict[bytes, Stat]
) -> None:
    here = tmp_path_factory.mktemp("difference")
    old, new = build(here, ("s3://b", "", before)), build(here, ("s3://b", "", after))
    assert told(old, new) == expected(before, after)


def test_large_manifests_that_differ_here_and_there(tmp_path: Path) -> None:
    before = plain([b"%06d" % at for at in range(30_000)])
    after = {path: stat for path, stat in before.items() if not 9_000 <= int(path) < 14_000}
    after[b"012345x"] = after[b"zz"] = Stat(1, "id:1")
    after[b"020000"] = Stat(2, "mtime:3")
    old, new = build(tmp_path, ("s3://b", "", before)), build(tmp_path, ("s3://b", "", after))
    assert told(old, new) == expected(before, after)
    assert told(new, old) == expected(after, before)


def test_the_same_snapshot_has_no_difference(tmp_path: Path) -> None:
    old, new = (build(tmp_path, ("s3://b", "", plain([b"x"]))) for _ in range(2))
    assert not difference(old, new) and difference(old, new) == Difference()


def test_a_mount_that_moves_in_the_list_changes_nothing_and_one_of_another_source_does(tmp_path: Path) -> None:
    one, two = ("s3://1", "a", plain([b"x"])), ("s3://2", "b", plain([b"y"]))
    old, turned = build(tmp_path, one, two), build(tmp_path, two, one)
    assert told(old, turned) == ([], [], [])
    assert told(old, build(tmp_path, one, ("s3://3", "b", plain([b"y"])))) == ([], [b"b/y"], [])


def test_the_same_path_from_a_mount_of_another_depth_is_changed(tmp_path: Path) -> None:
    old = build(tmp_path, ("s3://1", "", plain([b"a/x"])))
    assert told(old, build(tmp_path, ("s3://1", "a", plain([b"x"])))) == ([], [b"a/x"], [])


@pytest.mark.case("A19")
def test_one_multipart_etag_among_packed_ones_is_one_change(tmp_path: Path) -> None:
    before = plain([b"%03d" % at for at in range(500)])
    after = before | {b"007": Stat(7, 'etag:"9b2cf535f27731c974343645a3985328-3"')}
    old, new = build(tmp_path, ("s3://b", "", before)), build(tmp_path, ("s3://b", "", after))
    assert told(old, new) == ([], [b"007"], []) == told(new, old)
