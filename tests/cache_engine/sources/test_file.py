"""Trees of this host: links, loops, and files that change under the reader."""

from __future__ import annotations

import logging
import os
from urllib.parse import quote

import pytest

from cache_engine.errors import InvalidValue, NotFound, ObjectChanged
from cache_engine.sources import check_url
from cache_engine.sources.file import FileSource
from tests.contracts.places import fetch, identify, listed

BODY = os.urandom(100_000)


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "x").write_bytes(BODY)
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "tree2").mkdir()
    (tmp_path / "tree2" / "y").write_text("a neighbour that begins alike")
    return root


def open_tree(root) -> FileSource:
    return FileSource(f"file://{quote(str(root))}", {}, {})


def test_links_inside_the_tree_are_followed_and_never_out_of_it(tree, caplog):
    (tree / "file-link").symlink_to("a/x")
    (tree / "dir-link").symlink_to(tree / "a")
    (tree / "out").symlink_to("../secret")
    (tree / "out-dir").symlink_to("../tree2")
    (tree / "absolute").symlink_to("/etc/passwd")
    (tree / "nowhere").symlink_to("absent")
    os.mkfifo(tree / "pipe")
    source = open_tree(tree)
    with caplog.at_level(logging.WARNING):
        assert set(listed(source)) == {b"a/x", b"file-link", b"dir-link/x"}
    assert "5 entries" in caplog.text
    for key in (b"file-link", b"dir-link/x"):
        assert fetch(source, identify(source, key)) == BODY
    for key in (
        b"out",
        b"out-dir/y",
        b"absolute",
        b"nowhere",
        b"pipe",
        b"a",
        b"../secret",
        b"a/../a/x",
        b"/etc/passwd",
    ):
        with pytest.raises(NotFound):
            source.stat(key)


def test_a_loop_of_links_ends(tree):
    (tree / "a" / "up").symlink_to("..")
    (tree / "a" / "self").symlink_to(".")
    (tree / "a" / "b" / "round").symlink_to("../../a")
    assert set(listed(open_tree(tree))) == {b"a/x"}


def test_a_url_of_one_file_is_a_tree_of_one(tree):
    source = open_tree(tree / "a" / "x")
    assert set(listed(source)) == {b"x"} and fetch(source, identify(source, b"x")) == BODY
    with pytest.raises(NotFound):
        source.stat(b"b")


def test_a_tree_that_is_not_there_is_not_found(tree):
    with pytest.raises(NotFound):
        listed(open_tree(tree / "absent"))


@pytest.mark.case("A16")
@pytest.mark.parametrize("change", ["rewrite", "grow", "shrink", "touch"])
def test_a_file_that_changes_while_it_is_read_is_never_a_mixture(tree, change):
    source = open_tree(tree)
    obj = identify(source, b"a/x")
    stream = source.read(obj, 0, obj.size)
    assert stream.readinto(memoryview(bytearray(1000))) == 1000
    path = tree / "a" / "x"
    content = {"rewrite": BODY[::-1], "grow": BODY + b"x", "shrink": BODY[:10], "touch": BODY}[change]
    path.write_bytes(content)
    os.utime(path, ns=(0, 1))
    with pytest.raises(ObjectChanged):
        stream.readinto(memoryview(bytearray(1000)))
    stream.close()
    with pytest.raises(ObjectChanged):
        source.read(obj, 0, 10)


def test_a_file_that_is_replaced_by_rename_is_read_whole_from_the_old_one(tree):
    source = open_tree(tree)
    obj = identify(source, b"a/x")
    stream = source.read(obj, 0, obj.size)
    (tree / "new").write_bytes(b"new")
    (tree / "new").replace(tree / "a" / "x")
    buffer = memoryview(bytearray(obj.size))
    assert stream.readinto(buffer) == obj.size and buffer == BODY
    stream.close()


def test_names_in_the_url_are_percent_encoded(tmp_path):
    root = tmp_path / "odd % name"
    root.mkdir()
    (root / "x").write_text("x")
    assert set(listed(open_tree(root))) == {b"x"}
    with pytest.raises(InvalidValue):
        check_url("file:///x#y", {})
