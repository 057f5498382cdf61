"""The life of `forebay up`: real processes, real signals."""

import json
import os
import signal
import stat
import urllib.request

import pytest

from tests.dataset_controller.forebay import Forebay, wait_gone


def pids_of(forebay: Forebay) -> list[int]:
    return [int(row["pid"]) for row in forebay.workers()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_and_leaves_nothing(forebay: Forebay, number: signal.Signals) -> None:
    process = forebay.up("--workers", "2")
    workers = pids_of(forebay)
    process.send_signal(number)
    assert process.wait(30) == 0
    wait_gone(workers)
    assert not (forebay.home / "controller.json").exists()
    assert "no controller runs on" in forebay.run("get", "datasets", code=9)


def test_kill_9_leaves_no_orphan_and_the_next_start_is_clean(forebay: Forebay) -> None:
    process = forebay.up("--workers", "2")
    forebay.apply("demo", "--wait")
    workers, before = pids_of(forebay), forebay.dataset()
    process.kill()
    process.wait(30)
    wait_gone(workers)
    message = forebay.run("get", "datasets", code=9)
    assert message.startswith("forebay: no controller answers at http://127.0.0.1:")
    assert f"(named by {forebay.home}/controller.json); start one with `forebay up`" in message
    forebay.up("--workers", "2")
    forebay.until(lambda: forebay.phase() == "Ready")
    after = forebay.dataset()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["snapshot"] == before["status"]["snapshot"]


def test_a_second_one_on_the_same_state_is_refused_with_the_pid(forebay: Forebay) -> None:
    process = forebay.up()
    expected = (
        f"forebay: process {process.pid} runs a controller on {forebay.home};"
        " stop it with `forebay down`, or use --state\n"
    )
    assert forebay.run("up", code=2) == expected
    assert forebay.run("up", "--detach", code=2) == expected
    assert forebay.workers()[0]["state"] == "ready"


def test_detached_it_is_ready_when_the_command_returns(forebay: Forebay) -> None:
    said = forebay.run("up", "--detach", "--workers", "3", "--cache-size", "64MiB")
    note = json.loads((forebay.home / "controller.json").read_text())
    assert said == (
        f"Forebay answers at {note['url']} (pid {note['pid']}, state in {forebay.home})\n"
        "3 workers, 64.0 MiB of cache each\n"
        "Next: forebay apply -f dataset.yaml, then forebay get datasets; stop with forebay down\n"
    )
    assert [row["state"] for row in forebay.workers()] == ["ready"] * 3
    assert os.getsid(note["pid"]) == note["pid"]
    assert forebay.run("down") == f"stopped process {note['pid']} on {forebay.home}\n"
    assert forebay.run("down") == f"no controller runs on {forebay.home}\n"


def test_state_is_private(forebay: Forebay) -> None:
    forebay.run("up", "--detach")
    assert stat.S_IMODE(forebay.home.stat().st_mode) == 0o700


def test_datasets_and_cells_survive_a_restart(forebay: Forebay) -> None:
    forebay.run("up", "--detach")
    forebay.apply("demo", "--wait")
    uid = forebay.dataset()["metadata"]["uid"]
    forebay.script("w0", datasets={uid: {"cached": 5, "near": 0}})
    forebay.until(lambda: forebay.dataset()["status"]["cachedRatio"] == 100)
    digest = forebay.dataset()["status"]["snapshot"]["digest"]
    epoch = access_epoch(forebay)
    forebay.run("down")
    (forebay.source / ".outcome").write_text("down")  # a restart lists nothing: the source may be away
    forebay.run("up", "--detach")
    forebay.until(lambda: forebay.phase() == "Ready" and forebay.dataset()["status"]["cachedRatio"] == 100)
    assert forebay.dataset()["status"]["snapshot"]["digest"] == digest
    forebay.until(lambda: access_epoch(forebay) > epoch)


def access_epoch(forebay: Forebay) -> int:
    url = json.loads((forebay.home / "controller.json").read_text())["url"]
    with urllib.request.urlopen(f"{url}/v1/datasets/demo/access") as answer:
        return int(json.load(answer)["epoch"])


def test_a_killed_worker_is_started_again_degraded_then_ready(forebay: Forebay) -> None:
    forebay.run("up", "--detach", "--workers", "2")
    forebay.apply("demo", "--wait")
    first = forebay.workers()[1]
    url = json.loads((forebay.home / "controller.json").read_text())["url"]
    since = forebay.json("get", "datasets")["resourceVersion"]
    with urllib.request.urlopen(f"{url}/v1/datasets?watch=true&resourceVersion={since}", timeout=30) as watch:
        os.kill(first["pid"], signal.SIGKILL)
        phases = []
        while "Ready" not in phases:
            event = json.loads(watch.readline())
            if event["type"] == "MODIFIED":
                phases.append(event["object"]["status"]["phase"])
    assert phases[0] == "Degraded"
    again = forebay.workers()[1]
    assert (again["id"], again["directory"], again["restarts"]) == (first["id"], first["directory"], 1)
    assert again["pid"] != first["pid"]


def test_a_worker_that_says_nothing_is_told_of_in_numbers(forebay: Forebay) -> None:
    forebay.run("up", "--detach", "--workers", "2")
    forebay.apply("demo", "--wait")
    forebay.script("w1", mute=True)
    forebay.until(lambda: forebay.phase() == "Degraded")
    said = forebay.run("explain", "demo")
    assert "! workers: WorkersLost: 1 of 2 workers answer: w1 is silent\n" in said
    forebay.script("w1")
    forebay.until(lambda: forebay.phase() == "Ready")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "0"), "--workers 0 is not allowed; write a whole number from 1 to 64"),
        (("--port", "70000"), "--port 70000 is not allowed; write a whole number from 0 to 65535"),
        (
            ("--cache-size", "10 parsecs"),
            "--cache-size: '10 parsecs' is not a size; write a number of bytes or one like 10GiB, 500M, 64Mi",
        ),
    ],
)
def test_options_that_are_refused(forebay: Forebay, words: tuple[str, ...], message: str) -> None:
    assert forebay.run("up", *words, code=2) == f"forebay: {message}\n"
    assert forebay.run("up", "--detach", *words, code=2) == f"forebay: {message}\n"


def test_a_port_in_use(forebay: Forebay) -> None:
    forebay.run("up", "--detach")
    port = json.loads((forebay.home / "controller.json").read_text())["url"].rpartition(":")[2]
    other = ("--state", str(forebay.home.parent / "other"))
    message = forebay.run("up", "--port", port, *other, code=2)
    assert message == f"forebay: port {port} cannot be used: Address already in use; choose another with --port\n"


def test_a_state_file_that_is_broken_stops_the_workers_too(forebay: Forebay) -> None:
    forebay.home.mkdir(mode=0o700)
    (forebay.home / "state.db").write_bytes(b"not a database, and long enough to look at" * 100)
    message = forebay.run("up", code=2)
    assert f"forebay: {forebay.home}/state.db is not a state file" in message
    assert forebay.run("down") == f"no controller runs on {forebay.home}\n"
