"""A leashed process does not outlive the one that started it."""

import os
import select
import subprocess
import sys

from dataset_controller.clusters.local import leash

PARENT = f"""
import subprocess, sys, os, signal
child = subprocess.Popen([sys.executable, "-I", "-S", {leash.__file__!r}, str(os.getpid()), "sleep", "600"])
print(child.pid, flush=True)
signal.pause()
"""


def test_the_child_dies_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert select.select([child], [], [], 10)[0], "the child still lives"
    os.close(child)


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    command = [sys.executable, "-I", "-S", leash.__file__, "1", "echo", "started"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
