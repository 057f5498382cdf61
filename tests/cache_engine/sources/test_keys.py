"""Names that other tools lost: every key is listed and read exactly as the store has it."""

from __future__ import annotations

import pytest

from cache_engine.block import ObjectId
from tests.contracts.places import Place, fetch, listed, place

A01 = {"src/plain.txt": "p", "src/Rat\u00a0.txt": "nbsp"}
A02 = {"img/icon (14x13).png": "icon", "img/Autodesk Shared/x.bin": "x"}
A03 = {"q/a+b.bin": "plus", "q/a b.bin": "space", "q/a%2Bb.bin": "encoded plus"}
A07 = {"2026/1//abc": "two slashes", "2026/1/abc": "one slash", "2026/1///": "slashes only"}
A10 = {"empty-dir/": "", "filled-dir/": "marker with a body", "filled-dir/x": "x"}
ODD = {
    "dots/a/../b": "up", "dots/./c": "here", "x?y=1&z": "query", "x#frag": "fragment", "tilde~": "~",
    "a&amp;b<>": "xml",
    "quote'\"": "q", "ünïcode/日本": "u", "back\\slash": "b", "semi;colon": ";", "new\nline": "n", "star*": "*",
}  # fmt: skip


def read_all(where: Place, bodies: dict[str, str]) -> None:
    for key, body in bodies.items():
        where.put(key, body.encode())
    source = where.open()
    found = listed(source)
    assert {key.decode() for key in found} == set(bodies)
    for key, (size, version, _) in found.items():
        assert source.stat(key).version == version
        assert fetch(source, ObjectId(source.name, key, version, size)) == bodies[key.decode()].encode()


def ranged_targets(where: Place) -> list[str]:
    return [request.target for request in where.store.log if "range" in request.headers]


@pytest.mark.case("A01")
def test_a_no_break_space_is_encoded_once_and_read_back(remote: Place):
    read_all(remote, A01)
    assert sum(target.count("%C2%A0") for target in ranged_targets(remote)) == 1


@pytest.mark.case("A02")
def test_brackets_and_blanks_are_encoded_exactly_once(remote: Place):
    read_all(remote, A02)
    assert not any("%25" in request.target for request in remote.store.log)


@pytest.mark.case("A03")
def test_plus_blank_and_percent_2b_are_three_names(remote: Place):
    read_all(remote, A03)
    assert len(set(ranged_targets(remote))) == 3


@pytest.mark.case("A07")
def test_two_slashes_in_a_row_are_a_name_of_their_own(bucket: Place):
    read_all(bucket, A07)


@pytest.mark.case("A10")
def test_folder_markers_are_listed_and_read_by_their_exact_key(bucket: Place):
    read_all(bucket, A10)


def test_the_marker_of_the_mount_itself_is_no_object_of_it(bucket: Place):
    bucket.put("", b"marker")
    read_all(bucket, {"x": "x"})


def test_keys_with_every_odd_character(bucket: Place):
    read_all(bucket, ODD)


def test_names_on_a_disk_are_bytes(tmp_path):
    with place("file", tmp_path) as where:
        names = [b"latin\xe9", b"new\nline", b"per%cent", b"blank ", "ü".encode()]
        for name in names:
            (tmp_path / "tree").joinpath("d").mkdir(exist_ok=True)
            with open(bytes(tmp_path) + b"/tree/d/" + name, "wb") as file:
                file.write(name)
        source = where.open()
        found = listed(source)
        assert set(found) == {b"d/" + name for name in names}
        for key, (size, version, _) in found.items():
            assert fetch(source, ObjectId(source.name, key, version, size)) == key[2:]


@pytest.mark.case("A31")
@pytest.mark.parametrize("spelling", ["{}://bucket/team/a", "{}://bucket/team/a/"])
def test_spellings_of_a_prefix_are_one_place_and_its_parents_may_be_closed(bucket: Place, spelling):
    bucket.store.rule("deny_listing", allow=["bucket/team/a/"])
    bucket.store.put("bucket/team/ab/no", b"a sibling that begins alike")
    bucket.put("x", b"mine")
    name = bucket.open().name
    bucket.url = spelling.format(bucket.url.partition(":")[0])
    source = bucket.open()
    assert source.name == name
    assert set(listed(source)) == {b"x"} and source.stat(b"x").size == 4
    listings = [request for request in bucket.store.log if "list-type" in request.target]
    assert listings and all("prefix=team%2Fa%2F" in request.target for request in listings)
