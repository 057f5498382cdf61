import os
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 16 MiB with nothing on it."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)
