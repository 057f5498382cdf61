"""YAML as `apply -f` reads it."""

import pytest

from cache_engine.errors import InvalidValue
from dataset_controller.documents import LIMIT, read_documents


def test_several_documents_each_with_its_line() -> None:
    found = read_documents("a: 1\n---\n# nothing here\n---\nb: 2\n", "x.yaml")
    assert [(str(one), one.body) for one in found] == [("x.yaml:1", {"a": 1}), ("x.yaml:5", {"b": 2})]


def test_a_date_stays_the_text_that_was_written() -> None:
    assert read_documents("a: 2026-01-31\n", "x")[0].body == {"a": "2026-01-31"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "x.yaml:2:1: not valid YAML: the key 'a' a second time"),
        ("a: [1\n", "x.yaml:2:1: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: &x [1]\nb: *x\n", "x.yaml:2:4: not valid YAML: an alias (*name), which is not allowed; write it out"),
        ("[1]: 2\n", "x.yaml:1:1: not valid YAML: a key that is not a text"),
        ("", "x.yaml holds no document; write one with kind: Dataset"),
        ("---\n---\n", "x.yaml holds no document; write one with kind: Dataset"),
        ("a: !!python/object:os.system 1\n", "x.yaml:1:4: not valid YAML: could not determine a constructor"
         " for the tag 'tag:yaml.org,2002:python/object:os.system'"),
    ],
)  # fmt: skip
def test_what_yaml_lets_pass_or_words_badly(text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_documents(text, "x.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["\x00", "a: " + "[" * 5000, "x" * (LIMIT + 1)])
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"x\.yaml"):
        read_documents(text, "x.yaml")
