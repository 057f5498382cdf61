"""Every shape of reading over real workers: file objects, fsspec, warming, copies; forks, kills and descriptors."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

import cache_engine
import prefetch
from cache_engine.block import BLOCK, SPAN
from cache_engine.errors import SourceUnavailable
from cache_engine.filesystem import ForebayFileSystem
from tests.e2e.conftest import Stage, noise

NAMES = ["q/a+b.bin", "q/a b.bin", "q/a%2Bb.bin", "q/Rat\u00a0.txt", "q/icon (14x13).png", "q/\U0001f989.bin"]


@pytest.fixture(scope="module")
def small(stage: Stage) -> tuple[str, dict[str, bytes]]:
    files = {f"set/{n:03}": noise(1000 + n, n) for n in range(200)} | {n: n.encode() for n in NAMES}
    return stage.dataset(files), files


def mounted(stage: Stage) -> ForebayFileSystem:
    return ForebayFileSystem(api=stage.embedded.url, skip_instance_cache=True)


@pytest.mark.case("A03")
@pytest.mark.case("A02")
@pytest.mark.case("A01")
def test_similar_names_are_different_files_cold_and_warm(stage: Stage, small: tuple[str, dict[str, bytes]]) -> None:
    name, files = small
    fs = mounted(stage)
    assert fs.ls(f"{name}/q", detail=False) == sorted(f"{name}/{n}" for n in NAMES)
    for _ in range(2):
        for path in NAMES:
            assert fs.cat_file(f"{name}/{path}") == fs.open(f"{name}/{path}").read() == files[path]


def test_cat_of_many_get_and_find_agree_with_the_source(
    stage: Stage, small: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    name, files = small
    fs = mounted(stage)
    assert fs.cat(f"{name}/set", recursive=True) == {f"{name}/set/{n:03}": files[f"set/{n:03}"] for n in range(200)}
    fs.get(f"{name}/q/", str(tmp_path / "q"), recursive=True)
    assert {f"q/{p.name}": p.read_bytes() for p in (tmp_path / "q").iterdir()} == {n: files[n] for n in NAMES}
    assert len(fs.find(name)) == len(files)


def test_a_sequential_read_goes_on_while_a_worker_is_killed_under_it(stage: Stage) -> None:
    body = noise(SPAN + 40 * BLOCK + 7, 5)
    name = stage.dataset({"large": body})
    with mounted(stage).open(f"{name}/large") as file:
        got = bytearray(file.read(3 * BLOCK))
        os.kill(stage.embedded.worker_pids()[0], signal.SIGKILL)
        while part := file.read(100_000):
            got += part
    assert got == body


def test_an_error_inside_a_window_is_the_readers_and_later_reads_work(stage: Stage) -> None:
    body = noise(12 * BLOCK, 6)
    name = stage.dataset({"f": body})
    with cache_engine.open(name, api=stage.embedded.url, source=False) as client, client.open("f") as file:
        assert file.read(100_000) == body[:100_000]
        stage.store.rule("status", match=f"GET */{name}/*", code=500)
        with pytest.raises(SourceUnavailable) as fault:
            file.seek(6 * BLOCK)
            file.read(4 * BLOCK)
        assert name in "".join(fault.value.__notes__)
        stage.store.clear_rules()
        file.seek(0)
        assert file.read() == body


def _sum(fs: ForebayFileSystem, paths: list[str], answer: multiprocessing.SimpleQueue[int]) -> None:
    answer.put(sum(len(fs.cat_file(path)) for path in paths))


@pytest.mark.case("B20")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_four_loaders_of_every_start_method_read_all_samples(
    stage: Stage, small: tuple[str, dict[str, bytes]], method: str
) -> None:
    name, files = small
    fs = mounted(stage)
    fs.cat_file(f"{name}/set/000")
    stop = threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            fs.cat_file(f"{name}/set/001")

    busy = threading.Thread(target=read_on)
    busy.start()
    context = multiprocessing.get_context(method)
    answer = context.SimpleQueue()
    shares = [[f"{name}/set/{n:03}" for n in range(first, 200, 4)] for first in range(4)]
    children = [context.Process(target=_sum, args=(fs, share, answer)) for share in shares]
    for child in children:
        child.start()
    total = sum(answer.get() for _ in children)
    stop.set()
    busy.join()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert total == sum(len(body) for path, body in files.items() if path.startswith("set/"))


@pytest.mark.case("B21")
def test_5000_opens_over_20_instances_leave_no_descriptor(stage: Stage, small: tuple[str, dict[str, bytes]]) -> None:
    name, files = small
    gc.collect()
    start = len(os.listdir("/proc/self/fd"))
    instances = [ForebayFileSystem(api=stage.embedded.url, number=n) for n in range(20)]
    for n in range(5000):
        with instances[n % 20].open(f"{name}/set/{n % 200:03}") as file:
            if n % 25 == 0:
                assert file.read() == files[f"set/{n % 200:03}"]
    del instances, file
    ForebayFileSystem.clear_instance_cache()
    gc.collect()
    assert abs(len(os.listdir("/proc/self/fd")) - start) <= 5


def test_warming_leaves_nothing_for_the_source_to_send(stage: Stage) -> None:
    files = {f"w/{n:02}": noise(50_000 + n, 1000 + n) for n in range(40)} | {"large": noise(SPAN + 9 * BLOCK, 9)}
    name = stage.dataset(files)
    with cache_engine.open(name, api=stage.embedded.url) as client:
        report = prefetch.warm(client)
        assert report.complete and report.verified == report.bytes == sum(map(len, files.values()))
        asked = len(stage.gets(name))
        for path, body in files.items():
            assert client.read(path) == body
        assert prefetch.warm(client).complete
    assert len(stage.gets(name)) == asked


def test_the_verbs_over_a_real_dataset(stage: Stage, small: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    name, files = small
    done = stage.embedded.ask("cp", f"{name}/", str(tmp_path / "copy"), "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"files": len(files), "bytes": sum(map(len, files.values())), "failed": []}
    assert {str(p.relative_to(tmp_path / "copy")): p.read_bytes() for p in (tmp_path / "copy").rglob("*.*")} == {
        n: files[n] for n in NAMES
    }
    assert stage.embedded.ask("warm", name, "set/0*").returncode == 0
    assert stage.embedded.ask("ls", f"{name}/q").stdout.splitlines() == sorted(n[2:] for n in NAMES)
    assert stage.embedded.ask("cat", f"{name}/q/a+b.bin").stdout == "q/a+b.bin"
    missing = stage.embedded.ask("warm", name, "nothing/*.here")
    assert missing.returncode == 3 and "forebay ls" in missing.stderr


def test_a_warm_up_that_fails_in_part_is_exit_code_1_and_names_the_files(stage: Stage) -> None:
    name = stage.dataset({"good": b"good", "gone": b"gone"})
    stage.store.delete(f"bucket/{name}/gone")
    done = stage.embedded.ask("warm", name, "-o", "json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [each["path"] for each in report["failed"]] == ["gone"] and report["verified"] == 4
    assert "not held: gone:" in done.stderr
