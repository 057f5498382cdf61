"""Run a command that the kernel kills as soon as its parent is gone, however that went: `leash.py PARENT COMMAND...`.

A program of its own, started without site-packages (10 ms), instead of a preexec_fn: code between fork and exec of a
process with threads can dead-lock. The kernel watches the parent's *thread*, so the parent starts it from its main
thread. Imports nothing of ours.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become `command`. Ends with 1 if `parent` died before the kernel was told."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
