"""What is published is whole: the built wheel, installed alone, imports module by module and has its command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture import code

IMPORT_ALL = """
import importlib, sys
for name in sys.stdin.read().split():
    importlib.import_module(name)
    module = sys.modules[name]
    assert "site-packages" in module.__file__, module.__file__
print("imported")
"""
OPTIONAL = {"kubernetes", "torch", "s3fs", "ossfs", "oss2", "botocore"}


def run(*command: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(c) for c in command], input=stdin, cwd=cwd, env=alone, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wheel_alone_imports_every_module_and_runs_the_command(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, code.ROOT)
    (wheel,) = tmp_path.glob("forebay-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", code.ROOT / "constraints.txt", wheel)
    names = [
        ".".join(path.relative_to(code.ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in code.modules()
        if path.name != "__main__.py"
    ]
    assert "imported" in run(python, "-c", IMPORT_ALL, stdin="\n".join(names), cwd=tmp_path)
    assert "usage: forebay" in run(tmp_path / "env" / "bin" / "forebay", "--help", cwd=tmp_path)
    installed = run(python, "-m", "pip", "list", "--format=freeze").lower()
    assert not [name for name in OPTIONAL if f"\n{name}==" in f"\n{installed}"]
