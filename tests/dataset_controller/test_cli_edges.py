"""The command where people are clumsy and machines are full: one sentence, the right exit code, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from dataset_controller.cli import main
from tests.dataset_controller.build import document
from tests.dataset_controller.forebay import PROGRAM, Forebay


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aply"], "forebay: there is no verb 'aply'; did you mean `forebay apply`? `forebay --help` lists them\n"),
        (["日本"], "forebay: there is no verb '日本'; `forebay --help` lists them\n"),
        (
            ["describe"],
            "forebay describe: the following arguments are required: NAME; `forebay describe --help` shows how\n",
        ),
        (["warm"], "forebay warm: the following arguments are required: NAME; `forebay warm --help` shows how\n"),
        (
            ["warm", "birds/owls"],
            "forebay: 'birds/owls' is no name of a Dataset; write a path apart: forebay warm birds owls\n",
        ),
        (
            ["cat", "birds"],
            "forebay: 'birds' names no file; write NAME/PATH, `forebay ls birds` shows what there is\n",
        ),
        (["cp", "birds", ""], "forebay: the target is empty; write a file or directory, such as .\n"),
    ],
)
def test_what_is_typed_wrongly_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    try:
        code = main(words, {"HOME": "/nowhere"})
    except SystemExit as stop:  # argparse's way
        code = int(str(stop.code))
    assert (code, capsys.readouterr().err) == (2, said)


def test_the_command_alone_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {}) == 2
    assert "usage: forebay" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"], {})
    assert stop.value.code == 0 and capsys.readouterr().out.startswith("forebay 0.")


@pytest.mark.parametrize("verb", ["get", "describe", "explain", "refresh", "delete"])
def test_names_that_no_dataset_can_have(running: Forebay, verb: str) -> None:
    words = ("get", "datasets") if verb == "get" else (verb,)
    for name in ("", "a/b"):
        said = running.run(*words, name, code=2)
        assert said == f"forebay: {name!r} is no name of a Dataset; `forebay get datasets` lists those that exist\n"


def test_output_that_nobody_reads_ends_the_verb_in_silence(running: Forebay) -> None:
    """As in `forebay get workers | true`."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*PROGRAM, "get", "workers"], env=running.environ, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_behind_the_output_is_said(running: Forebay) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "get", "workers"], env=running.environ, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "forebay: standard output: No space left on device\n")


def test_names_beyond_the_terminals_encoding_are_escaped(running: Forebay) -> None:
    done = subprocess.run(
        [*PROGRAM, "get", "worker", "é"],
        env={**running.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (3, "forebay: there is no worker '\\xe9'; there are w0, w1\n")


def test_ctrl_c_while_waiting_stops_the_wait_and_keeps_what_was_declared(running: Forebay, tmp_path: Path) -> None:
    (tmp_path / ".outcome").write_text("down")
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(document("demo", f"file://{tmp_path}")))
    words = [*PROGRAM, "apply", "--wait", "-f", str(tmp_path / "demo.yaml")]
    process = subprocess.Popen(
        words, env=running.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    running.until(lambda: bool(running.json("get", "datasets")["items"]))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\nforebay: stopped\n")
    running.run("delete", "demo")


def test_no_colour_and_no_control_characters_outside_a_terminal(running: Forebay) -> None:
    for words in (["--help"], ["get", "workers"], ["get", "datasets", "-o", "yaml"], ["up", "--help"]):
        done = subprocess.run([*PROGRAM, *words], env=running.environ, capture_output=True, text=True, check=True)
        assert not [sign for sign in done.stdout + done.stderr if ord(sign) < 32 and sign != "\n"]


def test_down_speaks_to_programs_too(tmp_path: Path) -> None:
    forebay = Forebay(tmp_path / "home")
    assert forebay.json("down") == {"stopped": None, "state": str(forebay.home)}
