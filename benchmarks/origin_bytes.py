"""How many bytes leave the origin when 8 readers read everything through 3 workers at once, all of it cold?

4 objects of 128 MiB and 2,000 small files; each reader in a thread with a client of its own reads all of it, in an
order of its own. One read at the origin would be 1.00.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from benchmarks import report
from benchmarks.harness import Options, Question, Row, at_most, row
from benchmarks.objectstore import StoreProcess
from benchmarks.scene import ENVIRONMENT, KEYS, MIB, dataset, large_file, scratch, small_files
from examples.stage import Embedded

READERS = 8


def questions(options: Options) -> Iterator[Question | Row]:
    files = 200 if options.quick else 2_000
    large = (16 if options.quick else 128) * MIB
    with (
        scratch("origin") as directory,
        Embedded(directory / "home", 3, "--cache-size", "2GiB", env=ENVIRONMENT, out=sys.stderr) as embedded,
    ):
        root = directory / "root" / "bucket" / "all"
        total = sum(small_files(root / "small", files).values())
        total += sum(large_file(root / f"large-{n}", large + n).stat().st_size for n in range(4))
        with StoreProcess("s3", root=directory / "root", credentials=KEYS, first_byte=0.005, rate=200e6) as store:
            embedded.apply(dataset("all", "s3://bucket/all", {"endpoint": store.url, "region": "us-east-1"}, keys=True))
            before = store.sent
            read = read_everything(embedded)
            sent = store.sent - before
    assert read == READERS * total
    notes = {"bytes": total, "files": files + 4, "readers": READERS, "workers": 3, "read": read}
    yield row("origin bytes, 8 readers of everything", "x the Dataset", sent / total, at_most(1.02), notes=notes)


def read_everything(embedded: Embedded) -> int:
    """Bytes that all readers together got; small files in batches, large ones in pieces."""
    start = Barrier(READERS)

    def one(number: int) -> int:
        with embedded.open("all", 2, local=False, source=False) as client:
            names = [client.manifest.path(n) for n in range(client.manifest.files)]
            random.Random(number).shuffle(names)
            start.wait()
            return sum(len(body) for _, body in client.iter_many(names))

    with ThreadPoolExecutor(READERS) as pool:
        return sum(pool.map(one, range(READERS)))


if __name__ == "__main__":
    sys.exit(report.run({"origin_bytes": questions}))
