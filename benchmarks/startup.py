"""How long until it works: `forebay up` to ready, `apply` to Ready on 10,000 files, and what the command itself costs.

Real processes as a user starts them, on a state directory of their own. An arm returns seconds; there is no peer, the
goals are absolute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Options, Question, Row, at_most

WORKERS = 3
FILES = 10_000
PROGRAM = (sys.executable, "-m", "dataset_controller.cli")
TREE = Path(__file__).resolve().parents[1]


class Machine:
    """One state directory and a source of many small files beside it."""

    def __init__(self, root: Path, files: int) -> None:
        self.home = root / "home"
        self.source = root / "source"
        self._dataset = root / "dataset.yaml"
        self._number = 0
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        self._environ = {**clean, "FOREBAY_HOME": str(self.home), "PYTHONPATH": str(TREE)}
        for number in range(files):
            path = self.source / f"part-{number // 100:03d}" / f"file-{number:05d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d" % number)

    def forebay(self, *words: str) -> float:
        """Seconds that the command took. Raises CalledProcessError."""
        began = time.perf_counter()
        subprocess.run([*PROGRAM, *words], env=self._environ, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    def up(self) -> float:
        """`up --detach` returns when the API and every worker answer."""
        return self.forebay("up", "--detach", "--workers", str(WORKERS))

    def up_and_down(self) -> float:
        try:
            return self.up()
        finally:
            self.forebay("down")

    def apply(self) -> float:
        """A Dataset of a new name, so that it is listed anew."""
        self._number += 1
        name = f"startup-{self._number}"
        self._dataset.write_text(
            "apiVersion: data.forebay.io/v1alpha1\nkind: Dataset\n"
            f"metadata: {{name: {name}}}\nspec: {{mounts: [{{url: 'file://{self.source}'}}]}}\n"
        )
        seconds = self.forebay("apply", "--wait", "-f", str(self._dataset))
        self.forebay("delete", name)
        return seconds


def questions(options: Options) -> Iterator[Question | Row]:
    files = FILES // 10 if options.quick else FILES
    notes = {"workers": WORKERS, "files": files}
    with tempfile.TemporaryDirectory(prefix="forebay-startup-") as root:
        machine = Machine(Path(root), files)
        yield Question("startup: forebay --help", "s", {"forebay": lambda: machine.forebay("--help")}, at_most(0.15))
        arms = {"forebay": machine.up_and_down}
        yield Question("startup: forebay up to ready", "s", arms, at_most(2.0), mirrored=False, notes=notes)
        machine.up()
        try:
            arms = {"forebay": machine.apply}
            yield Question(f"startup: apply to Ready, {files} files", "s", arms, at_most(3.0), notes=notes)
        finally:
            machine.forebay("down")
