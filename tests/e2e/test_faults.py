"""What may go wrong around a read, in real processes: the reader gets right bytes, or an error that says what to do."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cache_engine.block import BLOCK
from cache_engine.errors import ObjectChanged, SourceUnavailable
from tests.e2e.conftest import Stage, noise


def test_a_worker_killed_during_fills_and_reads_is_no_error_and_leaves_no_wrong_byte(stage: Stage) -> None:
    files = {f"f{n:03}": noise(BLOCK * 2 + n, n) for n in range(60)}
    name = stage.dataset(files)
    stage.store.rule("delay", match="GET *", seconds=0.02)
    killed = threading.Event()

    def kill() -> None:
        os.kill(stage.embedded.worker_pids()[1], signal.SIGKILL)
        killed.set()

    with stage.embedded.open(name, local=False) as client:
        threading.Timer(0.3, kill).start()
        for path, body in files.items():
            assert client.read(path) == body
        assert killed.wait(10)
        for path, body in client.iter_many(list(files)):
            assert body == files[str(path)]
    with stage.embedded.open(name) as client:
        for path, body in files.items():
            assert client.read(path) == body, "what the killed worker left behind is proved before it is used"


def test_a_source_that_is_down_matters_only_for_what_is_cold(stage: Stage) -> None:
    warm, cold = noise(BLOCK, 11), noise(BLOCK, 12)
    name = stage.dataset({"warm": warm, "cold": cold})
    with stage.embedded.open(name, source=False) as client:
        assert client.read("warm") == warm
        stage.store.rule("status", match=f"GET */{name}/*", code=500)
        assert client.read("warm") == warm
        with pytest.raises(SourceUnavailable, match=name):
            client.read("cold")
        stage.store.clear_rules()
        assert client.read("cold") == cold, "the next try asks the source again"


@pytest.mark.case("A16")
@pytest.mark.parametrize("change", ["equal", "longer", "shorter"])
def test_an_object_replaced_in_the_middle_of_a_read_is_an_error_and_never_a_mix(stage: Stage, change: str) -> None:
    old = b"A" * (40 * BLOCK)
    new = b"B" * {"equal": len(old), "longer": len(old) + BLOCK, "shorter": len(old) - BLOCK}[change]
    name = stage.dataset({"f": old}, refresh="onChange")
    with stage.embedded.open(name, connections=1, local=False) as client:
        assert client.read("f", 0, BLOCK) == old[:BLOCK]
        stage.put(name, {"f": new})
        with pytest.raises(ObjectChanged, match="f"):
            client.read("f")
        assert client.read("f", 0, BLOCK) == old[:BLOCK], "what is cached of the old version stays right"
        stage.embedded.forebay("refresh", name)
        assert client.refresh()
        assert client.read("f") == new
