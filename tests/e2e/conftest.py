"""Real processes: an embedded Forebay with three workers, and an S3 store in this process whose faults are scripts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.objectstore import ObjectStore
from examples.stage import Embedded

KEYS = {"T_ID": "test-id", "T_SECRET": "test-secret"}
DATASET = """
apiVersion: data.forebay.io/v1alpha1
kind: Dataset
metadata: {{name: {name}}}
spec:
  mounts:
    - url: s3://bucket/{prefix}
      options: {{endpoint: {url}, region: us-east-1}}
      credentials:
        accessKeyId: {{env: T_ID}}
        secretAccessKey: {{env: T_SECRET}}
  snapshot: {{refresh: {refresh}}}
  nearCopies: {near}
"""


class Stage:
    """One store and one embedded Forebay, and the making of Datasets over them."""

    def __init__(self, store: ObjectStore, embedded: Embedded) -> None:
        self.store = store
        self.embedded = embedded
        self._count = 0

    def put(self, prefix: str, files: dict[str, bytes]) -> None:
        for name, body in files.items():
            self.store.put(f"bucket/{prefix}/{name}", body)

    def dataset(self, files: dict[str, bytes], refresh: str = "never", near: str = "complete") -> str:
        """Objects at the store, a Dataset over them, Ready; returns its name."""
        self._count += 1
        name = f"d{self._count}"
        self.put(name, files)
        self.embedded.apply(DATASET.format(name=name, prefix=name, url=self.store.url, refresh=refresh, near=near))
        return name

    def gets(self, name: str) -> list[tuple[str, str]]:
        """(target, Range) of every GET of an object of that Dataset."""
        return [
            (str(request.target), str(request.headers.get("range", "")))
            for request in self.store.log
            if request.method == "GET" and f"/{name}/" in str(request.target)
        ]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three workers of 1 GiB and a store that answers after 5 ms."""
    home = tmp_path_factory.mktemp("home")
    with (
        ObjectStore("s3", buckets=["bucket"], credentials=tuple(KEYS.values()), first_byte=0.005) as store,
        Embedded(home, 3, "--cache-size", "1GiB", env=KEYS) as embedded,
    ):
        yield Stage(store, embedded)


@pytest.fixture(autouse=True)
def no_rules_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fault script ends with the test that wrote it."""
    yield
    if "stage" in request.fixturenames:
        request.getfixturevalue("stage").store.clear_rules()


def noise(size: int, seed: int) -> bytes:
    """Bytes that no other offset has."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def fresh_home(tmp_path: Path) -> Path:
    return tmp_path / "home"
