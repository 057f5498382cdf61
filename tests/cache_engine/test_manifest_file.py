"""A manifest file is whole or refused with one clear error, whatever stands in it."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_engine.errors import CacheEngineError, InvalidValue
from cache_engine.manifest import Manifest
from cache_engine.manifest_file import ALIGN, FORMAT, HEAD, HEADER_LIMIT, MAGIC
from cache_engine.source import Stat
from tests.cache_engine.listings import build, plain

KEYS = [b"a/b/c", b"a/b/d", b"a/e", b"f", b"g/", b"h/i", b"\xff//x"]
_FAULTS = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("whole")
    build(directory, ("s3://b", "m", plain(KEYS) | {b"odd": Stat(1, "mtime:7")}))
    return (directory / "manifest").read_bytes()


def reopened(directory: Path, content: bytes) -> Manifest:
    (directory / "changed").write_bytes(content)
    return Manifest.open(directory / "changed")


@pytest.mark.parametrize("length", [0, 7, HEAD.size, 2000, -ALIGN, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, whole: bytes, length: int) -> None:
    with pytest.raises(InvalidValue, match="is not a usable manifest"):
        reopened(tmp_path, whole[:length])


@pytest.mark.parametrize("content", [b"PK\3\4" + bytes(4000), b"{}", bytes(8192)])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidValue, match="does not begin like one"):
        reopened(tmp_path, content)


def test_an_unknown_format_is_refused_by_its_number(tmp_path: Path, whole: bytes) -> None:
    with pytest.raises(InvalidValue, match="format 77"):
        reopened(tmp_path, whole[:8] + struct.pack("<I", 77) + whole[12:])


def test_the_length_of_the_header_is_bounded_by_the_file(tmp_path: Path) -> None:
    for length in (HEADER_LIMIT + 1, 2**32 - 1, 5000):
        with pytest.raises(InvalidValue, match="header"):
            reopened(tmp_path, HEAD.pack(MAGIC, FORMAT, length, 0) + b"{}")


@pytest.mark.parametrize(
    "change",
    [
        {"columns": {}},
        {"columns": None},
        {"files": 10**12},
        {"files": -1},
        {"files": True},
        {"directories": 0},
        {"mounts": [["s3://b", "../../etc"]]},
        {"mounts": [["s3://b", "/etc"]]},
        {"mounts": [["s3://b"]]},
        {"mounts": [[1, 2]]},
        {"mounts": 3},
        {"digest": "../../x"},
        {"digest": 5},
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, whole: bytes, change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="is not a usable manifest"):
        reopened(tmp_path, with_header(whole, change))


@pytest.mark.parametrize("extent", [[0, 2**62], [2**62, 0], [1, 8], [4096, 7], [-64, 8], [64, -8], "ab", [64], None])
@pytest.mark.parametrize("column", ["ends", "versions", "paths", "run_first", "dir_first"])
def test_a_column_outside_of_the_file_is_refused(tmp_path: Path, whole: bytes, column: str, extent: object) -> None:
    columns = json.loads(whole[HEAD.size : HEAD.size + HEAD.unpack_from(whole)[2]])["columns"]
    with pytest.raises(InvalidValue, match="is not a usable manifest"):
        reopened(tmp_path, with_header(whole, {"columns": columns | {column: extent}}))


def test_names_that_want_out_stay_names(tmp_path: Path) -> None:
    keys = [b"../../etc/passwd", b"/etc/shadow", b"a/../../b"]
    manifest = build(tmp_path, ("s3://b", "m", plain(keys)))
    assert all(manifest.path(at).startswith(b"m/") for at in range(3))
    assert manifest.list(b"").dirs == [b"m"]


@settings(max_examples=300, deadline=None)
@given(faults=_FAULTS)
def test_any_changed_byte_is_refused_at_open_or_found_by_verify(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, faults: list[tuple[int, int]]
) -> None:
    changed = bytearray(whole)
    for at, value in faults:
        changed[at % len(whole)] = value
    try:
        manifest = reopened(tmp_path_factory.getbasetemp(), bytes(changed))
        manifest.verify()
    except InvalidValue:
        return
    assert manifest.digest == Manifest.open(tmp_path_factory.getbasetemp() / "changed").digest
    columns = manifest._header.columns.values()
    covered = {at for start, length in columns for at in range(start, start + length)}
    assert all(bytes(changed)[at] == whole[at] for at in covered), "only the padding differs"


@settings(max_examples=300, deadline=None)
@given(faults=_FAULTS)
def test_an_unverified_damaged_file_ends_in_an_error_or_an_answer(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, faults: list[tuple[int, int]]
) -> None:
    changed = bytearray(whole)
    room = HEAD.size + HEAD.unpack_from(whole)[2]
    for at, value in faults:
        changed[room + at % (len(whole) - room)] = value
    try:
        manifest = reopened(tmp_path_factory.getbasetemp(), bytes(changed))
    except InvalidValue:
        return
    for directory in (b"", b"m", b"m/a", b"m/a/b", b"m/\xff"):
        for ask in (manifest.list, manifest.find, manifest.is_dir, manifest.below):
            with_one_error(lambda ask=ask, directory=directory: ask(directory))
    for at in range(len(manifest)):
        with_one_error(lambda at=at: manifest.object_id(at))


def with_one_error(ask: object) -> None:
    try:
        ask()  # type: ignore[operator]
    except CacheEngineError:
        pass


def with_header(whole: bytes, change: dict[str, object]) -> bytes:
    """The file with members of its header replaced, and the checksum made right again."""
    _, _, length, _ = HEAD.unpack_from(whole)
    text = json.dumps(json.loads(whole[HEAD.size : HEAD.size + length]) | change).encode().ljust(length)
    assert len(text) == length
    return HEAD.pack(MAGIC, FORMAT, length, zlib.crc32(text)) + text + whole[HEAD.size + length :]


def test_a_manifest_survives_its_file_being_replaced(tmp_path: Path) -> None:
    old = build(tmp_path, ("s3://b", "", plain([b"x"])))
    new = build(tmp_path, ("s3://b", "", plain([b"y"])))
    assert (old.path(0), new.path(0)) == (b"x", b"y")
    assert os.listdir(tmp_path) == ["manifest"]
