"""What a worker knows of its Datasets, where the controller says nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cache_engine.access import Access
from cache_engine.control import Control
from cache_engine.datasets import SILENT, Datasets
from cache_engine.errors import ControllerUnavailable


class SilentControl(Control):
    """Takes every question and answers none until it is told to."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.asked = 0
        self.answers = False
        self.heard = threading.Event()

    def access(self, name: str) -> Access:
        self.asked += 1
        if self.answers:
            return Access(name, "uid", 1, None)
        self.heard.wait(10)
        raise ControllerUnavailable("does not answer in time")


def test_whoever_waits_while_the_controller_is_silent_does_not_ask_it_once_more(tmp_path: Path) -> None:
    control = SilentControl()
    datasets = Datasets(control, tmp_path, {})
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(datasets.load, "d") for _ in range(24)]
        control.heard.set()
        for job in jobs:
            with pytest.raises(ControllerUnavailable, match="in time"):
                job.result(10)
    assert control.asked == 1
    control.answers = True
    assert datasets.load("other").access.dataset == "other", "of another Dataset it is asked"
    time.sleep(SILENT)
    assert datasets.load("d").access.uid == "uid"
