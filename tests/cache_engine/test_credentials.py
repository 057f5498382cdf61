from __future__ import annotations

import pytest

from cache_engine.credentials import check, resolve
from cache_engine.errors import InvalidValue, MissingCredential


def test_variables_and_files_become_values(tmp_path):
    (tmp_path / "secret").write_text("  from a file\n")
    references = {"accessKeyId": {"env": "ID"}, "secretAccessKey": {"file": str(tmp_path / "secret")}}
    assert resolve(references, {"ID": "me"}) == {"accessKeyId": "me", "secretAccessKey": "from a file"}


@pytest.mark.parametrize(
    "reference", [{"env": "NOT_SET"}, {"env": "EMPTY"}, {"file": "/nowhere/at/all"}, {"file": "empty"}, {"file": "."}]
)
def test_what_cannot_be_resolved_is_named(reference, tmp_path, monkeypatch):
    (tmp_path / "empty").write_text("\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingCredential, match="'bearerToken'"):
        resolve({"bearerToken": reference}, {"EMPTY": ""})


@pytest.mark.parametrize("content", [b"seeded\nsecret", b"seeded\xff\xfesecret", b"seeded\0secret", b"seeded" * 20_000])
def test_a_value_is_never_part_of_a_message(tmp_path, content):
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(MissingCredential) as caught:
        resolve({"password": {"file": str(tmp_path / "secret")}}, {})
    assert "seeded" not in repr(caught.value) + repr(caught.value.__context__)


@pytest.mark.parametrize(
    "references",
    [{"passwort": {"env": "X"}}, {"password": {}},
     {"password": {"env": "A", "file": "B"}}, {"password": {"value": "x"}},
     {"password": {"env": ""}}, {"password": "plain"}],
)  # fmt: skip
def test_only_references_are_taken(references):
    with pytest.raises(InvalidValue):
        check(references)
