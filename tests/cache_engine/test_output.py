"""What verbs print."""

import json

import pytest
import yaml

from cache_engine.output import count, facts, show, table


def test_columns_are_aligned_and_lines_have_no_blanks_at_the_end() -> None:
    assert table(("NAME", "N"), [("a", 1), ("longer", 22)]) == "NAME    N\na       1\nlonger  22"


def test_facts_have_their_values_in_one_column() -> None:
    assert facts([("A", 1), ("Longer", 2)]) == "A:      1\nLonger: 2"


def test_one_and_many() -> None:
    assert (count(1, "file"), count(0, "file"), count(2, "file")) == ("1 file", "0 files", "2 files")


def test_the_form_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "é", "n": 1}
    for form in ("json", "yaml", None):
        show(form, document, lambda: "for people")
    said = capsys.readouterr().out
    assert said.endswith("n: 1\nfor people\n")
    assert json.loads(said[: said.index("}") + 1]) == document
    assert yaml.safe_load("name: é\nn: 1") == document
