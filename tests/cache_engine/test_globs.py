"""Patterns over paths: what each form takes and leaves, what is refused, and that none of them can blow up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_engine.errors import InvalidValue
from cache_engine.globs import GLOB_LIMIT, compile_globs, regex_of


def takes(glob: str, path: bytes) -> bool:
    match = compile_globs([glob], [])
    assert match is not None
    return match(path)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", [b"a.py", b".py", b"a.b.py"], [b"d/a.py", b"a.pyc", b"a.py\n"]),
        ("**/*.py", [b"a.py", b"d/a.py", b"d/e/a.py"], [b"a.pyc", b"d.py/x"]),
        ("**", [b"a", b"a/b", b"", b"a//"], []),
        ("img/**", [b"img/a", b"img/a/b", b"img/"], [b"img", b"imgs/a", b"x/img/a"]),
        ("img/", [b"img/a", b"img/a/b"], [b"img"]),
        ("a/**/b", [b"a/b", b"a/x/b", b"a/x/y/b", b"a//b"], [b"a/xb", b"ab", b"a/b/c"]),
        ("a/**/**/b", [b"a/b", b"a/x/b"], [b"a"]),
        ("a/**/x*y/**/b", [b"a/xy/b", b"a/q/x-y/b", b"a/xy/xy/q/b"], [b"a/b", b"a/x/y/b"]),
        ("**/a/b", [b"a/b", b"a/a/b", b"a/c/a/b"], [b"a/c/b"]),
        ("?.txt", [b"a.txt", "é.txt".encode(), b"\xff.txt"], [b"ab.txt", b".txt", b"/.txt"]),
        ("[a-c]x", [b"ax", b"cx"], [b"dx", b"x"]),
        ("[!a-c]x", [b"dx", "éx".encode()], [b"ax", b"/x"]),
        ("[]]x", [b"]x"], [b"x"]),
        ("[!]]x", [b"ax"], [b"]x"]),
        ("[*]x", [b"*x"], [b"ax"]),
        ("[a-]x", [b"-x", b"ax"], [b"bx"]),
        ("[+--]x", [b"+x", b",x", b"-x"], [b".x"]),
        ("[\\^&&||~~]x", [b"\\x", b"^x", b"&x"], [b"ax"]),
        ("a.b", [b"a.b"], [b"axb"]),
        ("*a*b*", [b"ab", b"xaxbx", b"aab"], [b"ba", b"a/b"]),
        ("a*b*c", [b"abc", b"abbcc", b"axbxcc"], [b"abcx", b"ac"]),
        ("*ab*ab", [b"abab", b"abxab", b"ababab"], [b"ab", b"aba"]),
    ],
)
def test_what_a_pattern_takes(glob: str, yes: list[bytes], no: list[bytes]) -> None:
    assert [path for path in yes if not takes(glob, path)] == []
    assert [path for path in no if takes(glob, path)] == []


@pytest.mark.parametrize(
    "glob",
    [
        "",
        "/a",
        "[",
        "a[b",
        "[]",
        "[!]",
        "[b-a]",
        "[a/b]",
        "a**",
        "**b/c",
        "***",
        "../a",
        "a/./b",
        "x" * (GLOB_LIMIT + 1),
    ],
)
def test_a_pattern_that_cannot_be_right_is_refused(glob: str) -> None:
    with pytest.raises(InvalidValue, match="is not a pattern"):
        compile_globs([], [glob])


def test_exclude_wins_over_include_and_nothing_means_everything() -> None:
    assert compile_globs([], []) is None
    match = compile_globs(["**/*.jpg", "**/*.png"], ["tmp/**"])
    assert match is not None
    assert [match(path) for path in (b"a/x.jpg", b"y.png", b"tmp/x.jpg", b"z.gif")] == [True, True, False, False]
    without = compile_globs([], ["*.tmp"])
    assert without is not None and without(b"a") and not without(b"a.tmp")


ALPHABET = st.sampled_from(["a", "b", "/", "*", "?", "**", "[ab]", "[!a]", "/**/", "/"])


@settings(max_examples=500, deadline=None)
@given(st.lists(ALPHABET, max_size=8).map("".join), st.text(alphabet="ab/", max_size=10))
def test_atomic_groups_take_what_plain_backtracking_takes(glob: str, path: str) -> None:
    try:
        regex = regex_of(glob)
    except InvalidValue:
        return
    plain = regex.replace("(?>", "(?:")
    assert bool(re.match(regex, path, re.DOTALL)) == bool(re.match(plain, path, re.DOTALL))
    assert bool(re.match(regex, path, re.DOTALL)) == _plainly(_segments(glob), path.split("/"))


def _segments(glob: str) -> list[str]:
    return (f"{glob}**" if glob.endswith("/") else glob).split("/")


def _plainly(glob: list[str], path: list[str]) -> bool:
    """The same by recursion over segments, one at a time."""
    if not glob:
        return not path
    if glob == ["**"]:
        return bool(path)
    if glob[0] == "**":
        return _plainly(glob[1:], path) or (bool(path) and _plainly(glob, path[1:]))
    return bool(path) and _letters(glob[0], path[0]) and _plainly(glob[1:], path[1:])


def _letters(glob: str, name: str) -> bool:
    if not glob:
        return not name
    if glob[0] == "*":
        return _letters(glob[1:], name) or (bool(name) and _letters(glob, name[1:]))
    token = "[ab]" if glob.startswith("[ab]") else "[!a]" if glob.startswith("[!a]") else glob[0]
    fits = {"?": "ab", "[ab]": "ab", "[!a]": "b"}.get(token, token)
    return bool(name) and name[0] in fits and _letters(glob[len(token) :], name[1:])


@pytest.mark.parametrize("glob", ["*a" * 200 + "b", "**/" + "*a*/**/" * 60 + "b", "?*" * 200 + "b"])
def test_hostile_pairs_of_pattern_and_path_end(glob: str) -> None:
    assert not takes(glob, b"a" * 1000)
    assert not takes(glob, b"a/" * 500)
