"""`forebay up --detach`: the same command again, in a session of its own, awaited until it is ready or has failed.

The child writes one line to a pipe when it is ready; if the pipe ends without one, it has failed, and what it said
on its log is the error.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cache_engine.errors import CacheEngineError, InvalidValue

_EXITS = {InvalidValue.exit_code: InvalidValue}


def detach(command: Sequence[str], environ: Mapping[str, str], log: Path) -> dict[str, Any]:
    """Start `command` with `--ready-fd N`; returns what it announced. Raises what it failed with."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as ready, _opened(log) as output:
        beginning = output.tell()
        try:
            process = subprocess.Popen(
                [*command, "--ready-fd", str(theirs)],
                pass_fds=(theirs,),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        line = ready.readline()
    if line:
        process.returncode = 0  # it goes on without us: no warning that it was not waited for
        return dict(json.loads(line))
    code = process.wait()
    said = _last_line(log, beginning) or f"it ended with {code} and said nothing; look at {log}"
    raise _EXITS.get(code, CacheEngineError)(said)


def tell_ready(descriptor: int, document: Mapping[str, Any]) -> None:
    """The child's side."""
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(json.dumps(dict(document)).encode() + b"\n")


def _opened(log: Path) -> Any:
    try:
        log.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        log.parent.mkdir(exist_ok=True, mode=0o700)
        return log.open("ab")
    except OSError as error:
        raise InvalidValue(
            f"{log} cannot be written: {error.strerror}; choose a state directory with --state"
        ) from error


def _last_line(log: Path, beginning: int) -> str:
    with log.open("rb") as file:
        file.seek(beginning)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("forebay: ") if lines else ""
