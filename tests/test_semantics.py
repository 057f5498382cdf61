"""docs/SEMANTICS.md is a promise that runs: its Python blocks, in order, in one process, against a real Forebay."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache_engine import errors
from examples.stage import Embedded

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "SEMANTICS.md"
DATASET = """
apiVersion: data.forebay.io/v1alpha1
kind: Dataset
metadata: {{name: birds}}
spec:
  mounts: [{{url: "file://{source}"}}]
"""
PRELUDE = """
import os, signal, subprocess, sys

def _place(path):
    return os.path.join(SOURCE, path)

def put(path, body):
    '''A new object at the source, or a new version of one: written beside it and renamed, as careful writers do.'''
    os.makedirs(os.path.dirname(_place(path)), exist_ok=True)
    with open(_place(path) + '.new', 'wb') as file:
        file.write(body)
    os.replace(_place(path) + '.new', _place(path))

def remove(path):
    os.unlink(_place(path))

def forebay(*words):
    done = subprocess.run([sys.executable, '-m', 'dataset_controller.cli', *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

def kill_a_worker():
    from cache_engine.control import Control
    url = __import__('json').loads(open(os.path.join(os.environ['FOREBAY_HOME'], 'controller.json')).read())['url']
    os.kill(Control(url).call('GET', '/v1/workers')['items'][0]['pid'], signal.SIGKILL)
"""


def program() -> str:
    """The document with everything but its Python blocks blanked, so that tracebacks name its own lines."""
    lines, inside = [], False
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Embedded, Path]]:
    """An embedded Forebay with two workers, and the directory that is the source of `birds`."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "first").write_bytes(b"so that the first snapshot is not empty")
    with Embedded(tmp_path / "home", 2) as embedded:
        embedded.apply(DATASET.format(source=source))
        yield embedded, source


def test_every_example_holds(world: tuple[Embedded, Path], tmp_path: Path) -> None:
    embedded, source = world
    runner = (
        f"SOURCE = {str(source)!r}\nexec(compile({PRELUDE!r}, 'prelude', 'exec'))\n"
        f"exec(compile(open({str(tmp_path / 'program.py')!r}).read(), {str(DOCUMENT)!r}, 'exec'))\nprint('all held')"
    )
    (tmp_path / "program.py").write_text(program())
    done = subprocess.run(
        [sys.executable, "-c", runner], env=os.environ | embedded.environment, capture_output=True, text=True
    )
    assert done.stdout.endswith("all held\n"), f"{done.stdout}\n{done.stderr}"


def test_the_table_of_errors_is_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| (yes|no) \| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)
    family = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CacheEngineError) and kind is not errors.CacheEngineError
    }
    assert {name for name, *_ in rows} == family
    for name, also, retryable, code in rows:
        kind = getattr(errors, name)
        assert (kind.retryable, kind.exit_code) == (retryable == "yes", int(code)), name
        if also:
            assert issubclass(kind, getattr(builtins, also)), name
