"""One read, end to end, in real processes: sizes at the edges, one fetch a block, every way to read the same bytes."""

from __future__ import annotations

import concurrent.futures
import random
import subprocess
import threading

import pytest

from cache_engine.block import BLOCK, SPAN
from cache_engine.errors import NotFound
from tests.e2e.conftest import Stage, noise

EDGES = {
    "empty": 0,
    "one-byte": 1,
    "one-block-less-one": BLOCK - 1,
    "one-block": BLOCK,
    "one-block-and-a-byte": BLOCK + 1,
    "many-blocks": 5 * BLOCK + 17,
}


@pytest.fixture(scope="module")
def edges(stage: Stage) -> tuple[str, dict[str, bytes]]:
    files = {name: noise(size, size) for name, size in EDGES.items()}
    return stage.dataset(files), files


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("edge", EDGES)
def test_files_at_the_edges_of_a_block_read_whole_and_in_any_part(
    stage: Stage, edges: tuple[str, dict[str, bytes]], edge: str, local: bool
) -> None:
    name, files = edges
    body = files[edge]
    rng = random.Random(len(body))
    with stage.embedded.open(name, local=local) as client:
        assert client.info(edge).size == len(body)
        assert client.read(edge) == body
        assert client.read_many([edge, edge]) == [body, body]
        assert client.read(edge, len(body), 10) == b""
        for _ in range(20):
            start = rng.randrange(len(body) + 1)
            length = rng.choice([1, 100, BLOCK, 2 * BLOCK])
            assert client.read(edge, start, length) == body[start : start + length]
        buffer = bytearray(len(body) + 5)
        assert client.readinto(edge, buffer) == len(body)
        assert bytes(buffer[: len(body)]) == body


def test_the_second_read_leaves_the_source_alone(stage: Stage) -> None:
    body = noise(3 * BLOCK, 3)
    name = stage.dataset({"f": body})
    with stage.embedded.open(name) as client:
        assert client.read("f") == body
        asked = len(stage.gets(name))
        assert client.read("f") == body
        assert len(stage.gets(name)) == asked
        assert client.stats().bytes["local"] > 0, "a warm read on the worker's own host opens the cell itself"


@pytest.mark.case("B18")
def test_two_hundred_readers_of_one_cold_object_fetch_each_block_once(stage: Stage) -> None:
    body = noise(8 * BLOCK, 8)
    name = stage.dataset({"cold": body})
    start = threading.Barrier(200)

    def read() -> bool:
        start.wait()
        return client.read("cold") == body

    with (
        stage.embedded.open(name, connections=1, local=False) as client,
        concurrent.futures.ThreadPoolExecutor(200) as pool,
    ):
        assert all(job.result() for job in [pool.submit(read) for _ in range(200)])
    ranges = [asked for _, asked in stage.gets(name)]
    blocks = [block for asked in ranges for block in _blocks(asked)]
    assert sorted(blocks) == list(range(8)), ranges


def _blocks(asked: str) -> range:
    first, last = asked.removeprefix("bytes=").split("-")
    return range(int(first) // BLOCK, int(last) // BLOCK + 1)


def test_three_workers_share_a_large_object_span_by_span(stage: Stage) -> None:
    size = 3 * SPAN
    name = stage.dataset({"large": noise(size, 64)})
    with stage.embedded.open(name, local=False) as client:
        ring = client.reader.membership.ring
        obj = client.manifest.object_id(0)
        owners = {ring.owners(obj, n * SPAN, 1)[0] for n in range(3)}
        whole = client.read("large")
    assert whole == noise(size, 64)
    per_worker = [row["used"] for row in stage.embedded.workers()]
    assert len(owners) > 1 or per_worker


def test_curl_reads_a_file_by_its_path_whole_and_in_part(stage: Stage) -> None:
    body = noise(2 * BLOCK + 5, 5)
    name = stage.dataset({"a b/c+d%20e.bin": body})
    worker = stage.embedded.workers()[0]["url"]
    url = f"{worker}/v1/datasets/{name}/files/a%20b/c%2Bd%2520e.bin"
    assert subprocess.run(["curl", "-sf", url], capture_output=True, check=True).stdout == body
    part = subprocess.run(["curl", "-sf", "-r", "1000000-1100000", url], capture_output=True, check=True).stdout
    assert part == body[1000000:1100001]
    missing = subprocess.run(["curl", "-s", "-o", "-", "-w", "%{http_code}", url + "x"], capture_output=True, text=True)
    assert missing.stdout.endswith("404")


def test_a_missing_path_and_a_directory_are_said_to_be_so(stage: Stage, edges: tuple[str, dict[str, bytes]]) -> None:
    name, _ = edges
    nested = stage.dataset({"dir/file": b"x"})
    with stage.embedded.open(name) as client, pytest.raises(NotFound, match="no file"):
        client.read("nowhere")
    with stage.embedded.open(nested) as client, pytest.raises(NotFound, match="directory"):
        client.read("dir")


@pytest.mark.parametrize("near", ["never", "onRead", "complete"])
def test_a_host_without_an_owner_keeps_near_copies_as_the_dataset_says(stage: Stage, near: str) -> None:
    """Workers of this stage all stand on one host, so the reader plays another: its node has no worker at all."""
    body = noise(2 * BLOCK, 2)
    name = stage.dataset({"f": body}, near=near)
    with stage.embedded.open(name, local=False) as client:
        assert client.read("f") == body
