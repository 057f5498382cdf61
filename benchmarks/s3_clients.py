"""Which client should fetch the bytes: s3fs, obstore, boto3 and ossfs against the ranged GET of our sources?

Every client reads the same ranges of one object, demands its version of the store with If-Match (checked in the
store's log), signs its requests and has the same number of them in flight, each in a fresh process; imports and
the first request are not timed. The store is unthrottled and in a process of its own. MB/s and requests/s tell
how fast; CPU seconds a GB, of the client's process, what it takes away from the job beside it. What ours spends on
a small range, and what was cut, is in docs/notes/listing.md.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import Meter, in_child
from benchmarks.harness import Options, Question, Row, row
from benchmarks.objectstore import StoreProcess

KEY_PAIR = ("benchmark-id", "benchmark-secret")
REGION = "us-east-1"
IN_FLIGHT = 4
MIB = 1 << 20
Fetch = Callable[[int, int], int]
"""(start, stop) -> bytes received, of exactly one version."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one child does."""

    url: str
    """Of the store."""
    etag: str
    size: int
    """Bytes of the object bucket/object."""
    span: int
    """Bytes a request."""
    count: int
    """Requests, over the object again and again."""

    def ranges(self) -> list[tuple[int, int]]:
        starts = (number * self.span % self.size for number in range(self.count))
        return [(start, start + self.span) for start in starts]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one child measured."""

    seconds: float
    cpu: float


# -- the clients, each called in its own process -----------------------------------------------------------------


def forebay_s3(job: Job) -> Sample:
    """Ours: bytes into one buffer a thread that is used again."""
    return _ours(job, "s3", {"endpoint": job.url, "addressing": "path", "region": REGION})


def forebay_oss(job: Job) -> Sample:
    return _ours(job, "oss", {"endpoint": job.url, "addressing": "path"})


def _ours(job: Job, scheme: str, options: Mapping[str, str]) -> Sample:
    from cache_engine.block import ObjectId
    from cache_engine.sources import open_source

    pair = {"accessKeyId": KEY_PAIR[0], "secretAccessKey": KEY_PAIR[1]}
    source = open_source(f"{scheme}://bucket", options, pair)
    obj = ObjectId(source.name, b"object", f"etag:{job.etag}", job.size)
    own = threading.local()

    def fetch(start: int, stop: int) -> int:
        if not hasattr(own, "buffer"):
            own.buffer = memoryview(bytearray(job.span))
        stream = source.read(obj, start, stop)
        try:
            return stream.readinto(own.buffer[: stop - start])
        finally:
            stream.close()

    return _in_threads(job, fetch)


def boto3(job: Job) -> Sample:
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=IN_FLIGHT)
    client = boto3.client(
        "s3",
        endpoint_url=job.url,
        region_name=REGION,
        aws_access_key_id=KEY_PAIR[0],
        aws_secret_access_key=KEY_PAIR[1],
        config=config,
    )

    def fetch(start: int, stop: int) -> int:
        wanted = {"Bucket": "bucket", "Key": "object", "Range": f"bytes={start}-{stop - 1}", "IfMatch": job.etag}
        return len(client.get_object(**wanted)["Body"].read())

    return _in_threads(job, fetch)


def obstore(job: Job) -> Sample:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bucket",
        endpoint=job.url,
        region=REGION,
        access_key_id=KEY_PAIR[0],
        secret_access_key=KEY_PAIR[1],
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )

    def fetch(start: int, stop: int) -> int:
        return len(obstore.get(store, "object", options={"range": (start, stop), "if_match": job.etag}).bytes())

    return _in_threads(job, fetch)


def s3fs(job: Job) -> Sample:
    import s3fs

    extra = {"s3_additional_kwargs": {"IfMatch": job.etag}, "client_kwargs": {"region_name": REGION}}
    fs = s3fs.S3FileSystem(key=KEY_PAIR[0], secret=KEY_PAIR[1], endpoint_url=job.url, **extra)

    def fetch_all(ranges: list[tuple[int, int]]) -> int:
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        parts = fs.cat_ranges(["bucket/object"] * len(ranges), starts, stops, batch_size=IN_FLIGHT, on_error="raise")
        return sum(map(len, parts))

    return _measure(job, fetch_all)


def ossfs(job: Job) -> Sample:
    import ossfs

    fs = ossfs.OSSFileSystem(endpoint=job.url, key=KEY_PAIR[0], secret=KEY_PAIR[1])
    headers = {"If-Match": job.etag, "x-oss-range-behavior": "standard"}

    def fetch(start: int, stop: int) -> int:  # its `end` is inclusive
        return len(fs.cat_file("bucket/object", start=start, end=stop - 1, headers=headers))

    return _in_threads(job, fetch)


CLIENTS = {"s3": (forebay_s3, obstore, s3fs, boto3), "oss": (forebay_oss, ossfs)}


def _in_threads(job: Job, fetch: Fetch) -> Sample:
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        return _measure(job, lambda ranges: sum(pool.map(lambda span: fetch(*span), ranges)))


def _measure(job: Job, fetch_all: Callable[[list[tuple[int, int]]], int]) -> Sample:
    """Time the job, once the connections stand. Raises ValueError where bytes are missing."""
    fetch_all(job.ranges()[:IN_FLIGHT])
    with Meter() as meter:
        got = fetch_all(job.ranges())
    if got != job.span * job.count:
        raise ValueError(f"{got} bytes came instead of {job.span * job.count}")
    return Sample(meter.seconds, meter.cpu)


def child(client: str, job: Mapping[str, Any]) -> dict[str, float]:
    """What a child process runs."""
    return asdict(getattr(sys.modules[__name__], client)(Job(**job)))


# -- the questions -----------------------------------------------------------------------------------------------


class ClientArm:
    """One client as an arm: MB/s or requests/s a run; keeps what else a run measured."""

    def __init__(self, client: str, job: Job, store: StoreProcess, per_run: float) -> None:
        self._client, self._job, self._store = client, job, store
        self._per_run = per_run
        self.samples: list[Sample] = []

    def __call__(self) -> float:
        self._store.reset()
        ran = in_child("benchmarks.s3_clients:child", {"client": self._client, "job": asdict(self._job)})
        if not self.samples:
            self._check_log()
        self.samples.append(Sample(**ran.value))
        return self._per_run / self.samples[-1].seconds

    def cpu(self) -> float:
        """The median CPU seconds of a run."""
        return statistics.median(sample.cpu for sample in self.samples)

    def _check_log(self) -> None:
        """Raises ValueError where the client did not do what it is measured for."""
        gets = [line for line in self._store.log() if line["method"] == "GET"]
        loose = [line for line in gets if line["status"] != 206 or line["headers"].get("if-match") != self._job.etag]
        if loose or len(gets) < self._job.count:
            raise ValueError(f"{self._client}: {len(loose)} of {len(gets)} requests were no 206 under If-Match")


def questions(options: Options) -> Iterator[Question | Row]:
    """For each dialect: large ranges by MB/s and small ones by requests/s, each with its CPU."""
    size = (64 if options.quick else 256) * MIB
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "bucket", "object")
        path.parent.mkdir()
        path.write_bytes(os.urandom(MIB) * (size // MIB))
        for dialect in CLIENTS:
            with StoreProcess(dialect, root=directory, credentials=KEY_PAIR) as store:
                yield from _of_store(dialect, store, size, options)


def _of_store(dialect: str, store: StoreProcess, size: int, options: Options) -> Iterator[Question | Row]:
    etag = store.stat("bucket/object")["etag"]
    large = Job(store.url, etag, size, 16 * MIB, size // (16 * MIB))
    small = Job(store.url, etag, size, 64 << 10, 200 if options.quick else 1000)
    for job, unit, per_run, text in (
        (large, "MB/s", size / 1e6, "ranges of 16 MiB"),
        (small, "requests/s", small.count, "ranges of 64 KiB"),
    ):
        arms = {name: ClientArm(name, job, store, per_run) for name in _installed(dialect)}
        title = f"s3_clients: {dialect}, {text}"
        yield Question(title, unit, arms, mirrored=False, notes={"in_flight": IN_FLIGHT, "requests": job.count})
        gigabytes = job.span * job.count / 1e9
        cpu = {name: arm.cpu() / gigabytes for name, arm in arms.items()}
        medians = {f"{name} (s/GB)": seconds for name, seconds in cpu.items()}
        yield row(f"{title}, CPU", "s/GB", next(iter(cpu.values())), peers=medians, notes={"in_flight": IN_FLIGHT})


def _installed(dialect: str) -> list[str]:
    """The clients of a dialect that can be imported here, ours first; obstore and boto3 need the extra `bench`."""
    names = [client.__name__ for client in CLIENTS[dialect]]
    return [name for name in names if name.startswith("forebay") or importlib.util.find_spec(name) is not None]


if __name__ == "__main__":
    from benchmarks.report import run

    sys.exit(run({"s3_clients": questions}))
