"""Where the controller is."""

import json
from pathlib import Path

import pytest

from cache_engine.discovery import find_control, state_directory
from cache_engine.errors import ControllerUnavailable, InvalidValue


def note(home: Path, content: str) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    (home / "controller.json").write_text(content)
    return {"FOREBAY_HOME": str(home)}


def test_the_variable_goes_first(tmp_path: Path) -> None:
    environ = note(tmp_path, json.dumps({"url": "http://127.0.0.1:1"}))
    assert find_control({**environ, "FOREBAY_API": "http://127.0.0.1:2"}).url == "http://127.0.0.1:2"
    assert find_control(environ).url == "http://127.0.0.1:1"


def test_the_state_directory() -> None:
    assert state_directory({"FOREBAY_HOME": "/x", "HOME": "/h"}) == Path("/x")
    assert state_directory({"HOME": "/h"}) == Path("/h/.local/state/forebay")
    with pytest.raises(ControllerUnavailable, match="set FOREBAY_HOME"):
        state_directory({})


def test_nothing_was_started(tmp_path: Path) -> None:
    with pytest.raises(ControllerUnavailable) as caught:
        find_control({"FOREBAY_HOME": str(tmp_path)})
    assert str(caught.value) == f"no controller runs on {tmp_path}; start one with `forebay up`, or set FOREBAY_API"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 5}', "{"])
def test_a_note_that_says_nothing(tmp_path: Path, content: str) -> None:
    with pytest.raises((ControllerUnavailable, InvalidValue)):
        find_control(note(tmp_path, content))
