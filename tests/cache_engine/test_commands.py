"""`forebay ls`, `cat` and `cp` as people type them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cache_engine.commands import register
from cache_engine.errors import InvalidValue, NotFound
from tests.fakes.client import connect, publish

Run = Callable[..., int]


@pytest.fixture
def forebay() -> Run:
    publish("birds", {"readme.txt": b"ten birds\n", "owls/barn": b"x" * 1500, "owls/of/prey/eagle": b"no"})
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers(), lambda name, environ: connect(name))

    def run(*argv: str) -> int:
        args = parser.parse_args(argv)
        return int(args.run(args, {}))

    return run


@pytest.mark.parametrize(
    ("argv", "out"),
    [
        (["birds"], "owls/\nreadme.txt\n"),
        (["birds/owls/"], "barn\nof/\n"),
        (["forebay://birds/owls"], "barn\nof/\n"),
        (["birds/owls", "-R"], "barn\nof/\nof/prey/\nof/prey/eagle\n"),
        (["birds/readme.txt"], "readme.txt\n"),
    ],
)
def test_ls(forebay: Run, capsys: pytest.CaptureFixture[str], argv: list[str], out: str) -> None:
    assert forebay("ls", *argv) == 0
    assert capsys.readouterr().out == out


def test_ls_long_has_sizes_and_times(forebay: Run, capsys: pytest.CaptureFixture[str]) -> None:
    forebay("ls", "-l", "birds/owls")
    assert capsys.readouterr().out.splitlines() == [
        "   1.5 KiB  2023-11-14 22:13  barn",
        "         -                 -  of/",
    ]


def test_ls_as_json(forebay: Run, capsys: pytest.CaptureFixture[str]) -> None:
    forebay("ls", "birds", "-o", "json")
    directory, file = json.loads(capsys.readouterr().out)
    assert (directory["path"], directory["kind"]) == ("owls", "directory")
    assert (file["path"], file["size"], file["kind"]) == ("readme.txt", 10, "file") and file["version"]


def test_cat_writes_bytes_of_several_files(forebay: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    import sys

    assert forebay("cat", "birds/readme.txt", "birds/owls/of/prey/eagle") == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"ten birds\nno"


def test_cp_copies_trees_and_says_so(forebay: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert forebay("cp", "birds/owls", "birds/readme.txt", str(tmp_path / "into")) == 0
    printed = capsys.readouterr()
    assert printed.out == "3 files, 1.5 KiB copied\n" and "copying birds/owls: 100 %" in printed.err
    assert (tmp_path / "into" / "owls" / "of" / "prey" / "eagle").read_bytes() == b"no"
    assert (tmp_path / "into" / "readme.txt").read_bytes() == b"ten birds\n"


def test_cp_that_fails_in_part_is_exit_code_1(forebay: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "readme.txt").mkdir()
    assert forebay("cp", "birds/", str(tmp_path), "-o", "json") == 1
    printed = capsys.readouterr()
    assert [fault["path"] for fault in json.loads(printed.out)["failed"]] == ["birds/readme.txt"]
    assert "not copied: birds/readme.txt" in printed.err


def test_what_is_missing_or_misspelt_is_said(forebay: Run, tmp_path: Path) -> None:
    for argv in (["ls", "nobody"], ["ls", "birds/nope"], ["cat", "birds/owls"], ["cp", "birds/nope", str(tmp_path)]):
        with pytest.raises(NotFound):
            forebay(*argv)
    for argv in (["ls", "/"], ["cp", "birds", str(tmp_path), "--concurrency", "0"]):
        with pytest.raises(InvalidValue):
            forebay(*argv)
