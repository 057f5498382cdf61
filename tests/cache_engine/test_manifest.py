"""A manifest says of a Dataset exactly what its listings said, and shows it as one tree."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cache_engine.block import ObjectId
from cache_engine.errors import InvalidValue, NotFound
from cache_engine.manifest import Manifest
from cache_engine.manifest_rows import SEGMENT
from cache_engine.source import Stat
from tests.cache_engine.listings import ETAG, Model, build, plain

NAMES = st.sampled_from(
    [b"a", b"b", b"a-", b"a.b", b"a0", b"", b"", b"\xff", b".", b"..", b"x" * 256, b"y" * 60, b"\n" * 52]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(b"/".join)
VERSIONS = st.sampled_from(['etag:"%032x-3"', ETAG, "mtime:%d", 'weak:W/"%d"@7', "id:\udcff%d"])
STATS = st.builds(
    lambda size, version, at, mtime: Stat(size, version % at, mtime),
    st.integers(0, 2**64 - 1),
    VERSIONS,
    st.integers(0, 2**64),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(PATHS, STATS, max_size=25), st.integers(1, 7))
@example(
    {b"a": Stat(1, "mtime:1"), b"a-": Stat(2, "mtime:1"), b"a/b": Stat(3, "mtime:1"), b"a/": Stat(4, "mtime:1")}, 1
)
@example({b"": Stat(1, "mtime:1")}, 1)
@example({}, 1)
def test_a_manifest_agrees_with_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, objects: dict[bytes, Stat], page: int
) -> None:
    manifest = build(tmp_path_factory.mktemp("model"), ("s3://b", "", objects), page=page)
    model = Model(list(objects))
    assert manifest.files == len(manifest) == len(objects)
    assert manifest.bytes == sum(stat.size for stat in objects.values())
    assert manifest.paths_between(0, len(objects)) == model.paths
    for index, path in enumerate(model.paths):
        stat = objects[path]
        assert manifest.find(path) == index
        assert (manifest.path(index), manifest.mtime_ns(index)) == (path, stat.mtime_ns)
        assert manifest.object_id(index) == ObjectId("s3://b", path, stat.version, stat.size)
    assert manifest.columns_between(0, len(objects)).versions == [objects[path].version for path in model.paths]
    assert (manifest.hidden, manifest.unshowable, manifest.markers) == (model.hidden, model.unshowable, model.markers)
    _assert_same_tree(manifest, model)
    manifest.verify()


def _assert_same_tree(manifest: Manifest, model: Model) -> None:
    seen, waiting = set(), [b""]
    while waiting:
        directory = waiting.pop()
        seen.add(directory)
        listed = manifest.list(directory)
        assert (listed.dirs, listed.files) == model.entries(directory)
        prefix = directory + b"/" if directory else b""
        assert [manifest.path(index) for index in listed.indices] == [prefix + name for name in listed.files]
        waiting += [prefix + name for name in listed.dirs]
    assert seen == model.dirs
    for path in model.paths:
        assert manifest.is_dir(path) == model.is_dir(path)


def test_several_mounts_and_nested_mount_paths_are_one_tree(tmp_path: Path) -> None:
    manifest = build(
        tmp_path,
        ("s3://root", "", plain([b"top", b"deep/er/x"])),
        ("oss://inner", "deep/er", plain([b"y", b"z/1"])),
        ("http://h", "deep", plain([b"k"])),
    )
    assert manifest.mount_paths == ("", "deep/er", "deep")
    assert manifest.list(b"").dirs == [b"deep"] and manifest.list(b"").files == [b"top"]
    assert manifest.list(b"deep/er").files == [b"x", b"y"] and manifest.list(b"deep/er").dirs == [b"z"]
    found = manifest.find(b"deep/er/z/1")
    assert manifest.mount(found) == 1
    assert manifest.object_id(found) == ObjectId("oss://inner", b"z/1", ETAG % 1, 1)
    assert manifest.object_id(manifest.find(b"deep/er/x")).source == "s3://root"


def test_one_path_from_two_mounts_is_refused_naming_both(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"'a/b/x'.*s3://one \(mounted at 'a'\).*s3://two \(mounted at 'a/b'\)"):
        build(tmp_path, ("s3://one", "a", plain([b"b/x"])), ("s3://two", "a/b", plain([b"x"])))
    assert os.listdir(tmp_path) == [], "no half of a file stays behind"


def test_one_key_listed_twice_is_refused_naming_it(tmp_path: Path) -> None:
    both = ("s3://one", "", plain([b"k"]))
    with pytest.raises(InvalidValue, match="'k' would stand for two files"):
        build(tmp_path, both, both)


@pytest.mark.parametrize("path", ["/a", "a/", "..", "a//b", "a/../b"])
def test_a_mount_path_stays_inside_the_dataset(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidValue):
        build(tmp_path, ("s3://b", path, plain([b"x"])))


@pytest.mark.case("A05")
def test_a_folder_wins_over_a_file_of_its_name_and_both_are_found_by_key(tmp_path: Path) -> None:
    manifest = build(tmp_path, ("s3://b", "", plain([b"foo", b"foo/bar", b"foo-1"])))
    root = manifest.list(b"")
    assert (root.dirs, root.files) == ([b"foo"], [b"foo-1"])
    assert manifest.hidden == 1
    assert manifest.size(manifest.find(b"foo")) == 0 and manifest.size(manifest.find(b"foo/bar")) == 1


def test_a_hidden_file_is_found_even_segments_before_its_folder(tmp_path: Path) -> None:
    keys = [b"d/foo", *(b"d/foo-%06d" % at for at in range(2 * SEGMENT)), b"d/foo/x"]
    manifest = build(tmp_path, ("s3://b", "", plain(keys)))
    listed = manifest.list(b"d")
    assert manifest.hidden == 1 and listed.dirs == [b"foo"]
    assert len(listed.files) == 2 * SEGMENT and listed.files[0] == b"foo-000000"


@pytest.mark.case("A07")
def test_two_slashes_are_a_folder_without_a_name(tmp_path: Path) -> None:
    keys = [b"2026/1//abc", b"2026/1/abc", b"2026/1///"]
    manifest = build(tmp_path, ("s3://b", "", plain(keys)))
    month = manifest.list(b"2026/1")
    assert (month.dirs, month.files) == ([b""], [b"abc"])
    nameless = manifest.list(b"2026/1/")
    assert (nameless.dirs, nameless.files) == ([b""], [b"abc"])
    assert [manifest.key(manifest.find(key)) for key in keys] == keys
    assert manifest.unshowable == 0


@pytest.mark.case("A10")
def test_folder_markers_are_directories_to_every_call(tmp_path: Path) -> None:
    manifest = build(tmp_path, ("s3://b", "", plain([b"empty-dir/", b"filled-dir/", b"filled-dir/x"])))
    for path in (b"empty-dir", b"empty-dir/", b"filled-dir", b"filled-dir/"):
        assert manifest.is_dir(path)
    assert manifest.list(b"").dirs == [b"empty-dir", b"filled-dir"] and manifest.list(b"").files == []
    assert manifest.list(b"empty-dir").files == [] == manifest.list(b"empty-dir").dirs
    assert manifest.list(b"filled-dir/").files == [b"x"]
    assert manifest.size(manifest.find(b"filled-dir/")) == 1, "its body is read by key"
    with pytest.raises(NotFound, match="is a directory"):
        manifest.find(b"empty-dir")
    assert manifest.markers == 2


@pytest.mark.case("A28")
def test_2500_keys_of_three_pages_stay_2500_in_byte_order(tmp_path: Path) -> None:
    keys = [b"data/%s-%05d" % (random.Random(at).randbytes(2).hex().encode(), at) for at in range(2500)]
    manifest = build(tmp_path, ("s3://b", "", plain(keys)), page=1000)
    assert manifest.paths_between(0, 2500) == sorted(set(keys)) and len(manifest) == 2500


@pytest.mark.case("A33")
def test_folders_that_exist_only_through_their_children(tmp_path: Path) -> None:
    manifest = build(tmp_path, ("s3://b", "", plain([b"deep/x/y.bin"])))
    assert [manifest.list(at).dirs for at in (b"", b"deep", b"deep/x")] == [[b"deep"], [b"x"], []]
    assert manifest.list(b"deep/x").files == [b"y.bin"]
    assert manifest.is_dir(b"deep/x") and not manifest.is_dir(b"deep/x/y.bin") and not manifest.is_dir(b"dee")
    other = build(tmp_path, ("s3://b/deep", "x.y", plain([b"x/y.bin"])))
    assert other.is_dir(b"x.y/x") and not other.is_dir(b"x") and not other.is_dir(b"x.y/x.")


@pytest.mark.case("A19")
def test_multipart_etags_cost_their_own_segment_only(tmp_path: Path) -> None:
    keys = [b"k%07d" % at for at in range(2 * SEGMENT)]
    objects = plain(keys)
    packed = build(tmp_path, ("s3://b", "", objects))
    before = os.path.getsize(tmp_path / "manifest")
    objects[keys[3]] = Stat(3, 'etag:"9b2cf535f27731c974343645a3985328-3"')
    mixed = build(tmp_path, ("s3://b", "", objects))
    grown = os.path.getsize(tmp_path / "manifest") - before
    assert 0 < grown <= SEGMENT * 28
    assert mixed.version(3) == 'etag:"9b2cf535f27731c974343645a3985328-3"'
    assert mixed.version(4) == packed.version(4) and mixed.version(SEGMENT + 4) == packed.version(SEGMENT + 4)


@pytest.mark.parametrize("version", ['etag:"%032X"', "etag:'%032x'", 'etag:"%031x "', 'etag:"%032x', 'eta:g"%032x"'])
def test_only_exact_etags_are_packed(tmp_path: Path, version: str) -> None:
    objects = {b"%d" % at: Stat(1, version % (2**127 + 0xABCDEF + at)) for at in range(3)}
    manifest = build(tmp_path, ("s3://b", "", objects))
    assert [manifest.version(at) for at in range(3)] == [stat.version for stat in objects.values()]


def test_versions_whose_joint_looks_regular_are_kept_apart(tmp_path: Path) -> None:
    halves = [(ETAG % 5)[:20], (ETAG % 5)[20:] + ETAG % 6]
    manifest = build(tmp_path, ("s3://b", "", {b"%d" % at: Stat(1, half) for at, half in enumerate(halves)}))
    assert [manifest.version(at) for at in range(2)] == halves


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(PATHS, STATS, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_digest_knows_neither_order_nor_pages(
    tmp_path_factory: pytest.TempPathFactory, objects: dict[bytes, Stat], order: random.Random, page: int
) -> None:
    shuffled = dict(order.sample(list(objects.items()), len(objects)))
    here = tmp_path_factory.mktemp("digest")
    one, other = (build(here, ("s3://b", "m", listing), page=page) for listing in (objects, shuffled))
    assert one.digest == other.digest
    key = next(iter(objects))
    old = objects[key]
    for stat in (Stat(old.size ^ 1, old.version, old.mtime_ns), Stat(old.size, old.version + "x", old.mtime_ns)):
        assert build(here, ("s3://b", "m", objects | {key: stat})).digest != one.digest
    assert build(here, ("s3://b", "n", objects)).digest != one.digest
    assert build(here, ("s3://c", "m", objects)).digest != one.digest


@pytest.mark.parametrize("order", ["sorted", "shuffled", "interleaved mounts"])
def test_listings_of_several_segments_come_out_sorted(tmp_path: Path, order: str) -> None:
    keys = [b"d%02d/%05d" % (at % 37, at) for at in range(3 * SEGMENT + 5)]
    if order == "shuffled":
        random.Random(7).shuffle(keys)
    mounts = (
        [keys[0::2], keys[1::2]] if order == "interleaved mounts" else [sorted(keys) if order == "sorted" else keys]
    )
    manifest = build(tmp_path, *((f"s3://{at}", "", plain(part)) for at, part in enumerate(mounts)))
    assert manifest.paths_between(0, len(keys)) == sorted(keys)
    manifest.verify()
    for at, part in enumerate(mounts):
        for number in (0, 1, len(part) // 2, len(part) - 1):
            expected = ObjectId(f"s3://{at}", part[number], ETAG % number, number)
            assert manifest.object_id(manifest.find(part[number])) == expected
    assert sum(len(manifest.list(name).files) for name in manifest.list(b"").dirs) == len(keys)


def test_a_repeat_across_segments_is_refused(tmp_path: Path) -> None:
    keys = [b"%06d" % at for at in range(SEGMENT)]
    with pytest.raises(InvalidValue, match="two files"):
        build(tmp_path, ("s3://a", "", plain(keys)), ("s3://b", "", plain([keys[-1], b"z"])))
    with pytest.raises(InvalidValue, match="two files"):
        build(tmp_path, ("s3://a", "", plain(keys)), ("s3://b", "", plain([b"0", keys[77], b"z"])))


def test_files_below_a_directory_are_neighbours(tmp_path: Path) -> None:
    manifest = build(tmp_path, ("s3://b", "", plain([b"a", b"a-b", b"a/b/c", b"a/d", b"a0"])))
    assert [manifest.path(at) for at in manifest.below(b"a")] == [b"a/b/c", b"a/d"]
    assert manifest.below(b"") == range(5) and not manifest.below(b"x")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    manifest = build(tmp_path, ("s3://b", "", plain([b"a/b"])))
    for call in (lambda: manifest.find(b"a/c"), lambda: manifest.list(b"a/b"), lambda: manifest.object_id(1)):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(NotFound):
        Manifest.open(tmp_path / "absent")
    assert "1 files" in repr(manifest)


@pytest.mark.parametrize("stat", [Stat(-1, "id:1"), Stat(2**64, "id:1"), Stat(1, "id:1", 2**63)])
def test_numbers_beyond_64_bits_are_refused(tmp_path: Path, stat: Stat) -> None:
    with pytest.raises(InvalidValue, match="64 bits"):
        build(tmp_path, ("s3://b", "", {b"k": stat}))
