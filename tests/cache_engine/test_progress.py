"""The line that says how far a verb is, word by word."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios

import pytest

from cache_engine.progress import ProgressLine, describe
from cache_engine.sizes import GIB, MIB


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, GIB, 0.0, "[    ]   0 %  0 B of 1.0 GiB"),
        (512 * MIB, GIB, 2.0, "[##  ]  50 %  512 MiB of 1.0 GiB, 256 MiB/s, ETA 2.0s"),
        (GIB, GIB, 4.0, "[####] 100 %  1.0 GiB of 1.0 GiB, 256 MiB/s, 4.0s"),
        (0, 0, 1.0, "[####] 100 %  0 B of 0 B"),
    ],
)
def test_what_the_line_says(done: int, total: int, seconds: float, text: str) -> None:
    assert describe(done, total, seconds, bar=4) == text


def test_a_terminal_is_rewritten_ten_times_a_second_at_most() -> None:
    now = [0.0]
    screen = Terminal()
    line = ProgressLine(screen, "warming", lambda: now[0])
    for done in range(1, 101):
        now[0] += 0.01
        line(done, 100)
    line.end()
    assert 8 <= screen.getvalue().count("\r") <= 11
    assert screen.getvalue().endswith("\n") and "100 %" in screen.getvalue().rsplit("\r", 1)[1]


def test_elsewhere_it_is_plain_lines_now_and_then_and_one_at_the_end() -> None:
    now = [0.0]
    log = io.StringIO()
    line = ProgressLine(log, "warming", lambda: now[0])
    for done in range(1, 13):
        now[0] += 1.0
        line(done, 12)
    line.end()
    line.end()
    lines = log.getvalue().splitlines()
    assert len(lines) == 3 and all(each.startswith("warming: ") for each in lines)
    assert "\r" not in log.getvalue() and "#" not in log.getvalue() and "100 %" in lines[-1]


def test_nothing_done_is_nothing_said() -> None:
    log = io.StringIO()
    ProgressLine(log, "warming").end()
    assert log.getvalue() == ""


def test_on_a_narrow_terminal_the_line_is_cut_not_wrapped() -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with open(theirs, "w") as terminal:
        line = ProgressLine(terminal, "warming a-dataset-with-a-long-name")
        line(1, 2)
        line.end()
        said = os.read(ours, 4096).decode()
    os.close(ours)
    assert said == "\rwarming a-dataset-with-a-long\x1b[K\r\n"
