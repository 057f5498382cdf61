"""pandas, pyarrow, torch and plain Python libraries read a Dataset through fsspec, unchanged."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cache_engine.filesystem import ForebayFileSystem
from cache_engine.sizes import MIB
from tests.fakes.client import MemoryClient, connect, publish

ROWS = 50_000


def table_bytes(pyarrow: Any, first: int, group: int = 5_000) -> bytes:
    import pyarrow.parquet as parquet

    numbers = list(range(first, first + ROWS))
    table = pyarrow.table({"id": numbers, "text": [f"row {n}" * 4 for n in numbers], "year": [2024] * ROWS})
    sink = io.BytesIO()
    parquet.write_table(table, sink, row_group_size=group, compression="none")
    return sink.getvalue()


@pytest.fixture
def fs() -> ForebayFileSystem:
    publish(
        "tables",
        {
            "birds.csv": b"name,eggs\nowl,3\ngull,2\n",
            "birds.csv.gz": gzip.compress(b"name,eggs\nowl,3\ngull,2\n"),
            "latin.csv": "name\nM\u00f6we\n".encode("latin-1"),
        },
    )
    fs = ForebayFileSystem(connect=connect, skip_instance_cache=True)
    fs.invalidate_cache("tables")
    return fs


def test_pandas_reads_csv_by_url(fs: ForebayFileSystem) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    options = {"connect": connect}
    for name in ("birds.csv", "birds.csv.gz"):
        frame = pandas.read_csv(f"forebay://tables/{name}", storage_options=options)
        assert frame.to_dict("list") == {"name": ["owl", "gull"], "eggs": [3, 2]}
    latin = pandas.read_csv("forebay://tables/latin.csv", storage_options=options, encoding="latin-1")
    assert latin["name"].tolist() == ["M\u00f6we"]


def test_pandas_cannot_write(fs: ForebayFileSystem) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(OSError, match="read-only"):
        pandas.DataFrame({"a": [1]}).to_csv("forebay://tables/new.csv", storage_options={"connect": connect})


def test_pandas_reads_columns_of_parquet_without_reading_the_rest(fs: ForebayFileSystem) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    body = table_bytes(pyarrow, 0)
    publish("columns", {"part.parquet": body})
    fs = ForebayFileSystem(connect=connect)
    fs.invalidate_cache("columns")
    frame = pandas.read_parquet("forebay://columns/part.parquet", columns=["id"], storage_options={"connect": connect})
    assert frame["id"].tolist() == list(range(ROWS))
    client = fs.client("columns")
    assert isinstance(client, MemoryClient)
    assert sum(length for _, _, length in client.log) < len(body) / 2


def test_pyarrow_reads_files_and_partitioned_datasets(fs: ForebayFileSystem) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.dataset as dataset
    import pyarrow.parquet as parquet

    publish("lake", {f"day={day}/part.parquet": table_bytes(pyarrow, day * ROWS) for day in (1, 2, 3)})
    fs.invalidate_cache("lake")
    one = parquet.read_table("lake/day=2/part.parquet", filesystem=fs)
    assert one["id"].to_pylist() == list(range(2 * ROWS, 3 * ROWS))
    whole = dataset.dataset("lake", filesystem=fs, format="parquet", partitioning="hive")
    assert whole.count_rows() == 3 * ROWS
    found = whole.to_table(filter=(dataset.field("day") == 3) & (dataset.field("id") < 3 * ROWS + 10))
    assert found["id"].to_pylist() == list(range(3 * ROWS, 3 * ROWS + 10))
    assert parquet.ParquetFile(fs.open("lake/day=1/part.parquet")).metadata.num_rows == ROWS


def test_pyarrow_sees_a_read_only_file_system_of_the_right_kind(fs: ForebayFileSystem) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow.fs import FileSelector, FileType, FSSpecHandler, PyFileSystem

    arrow = PyFileSystem(FSSpecHandler(fs))
    kinds = {each.path: each.type for each in arrow.get_file_info(FileSelector("tables"))}
    assert set(kinds.values()) == {FileType.File} and len(kinds) == 3
    assert arrow.get_file_info("tables/none").type is FileType.NotFound
    assert arrow.open_input_file("tables/birds.csv").read_at(4, 5) == b"eggs"
    with pytest.raises(OSError):
        arrow.create_dir("tables/new")


def test_torch_loads_from_a_file_object(fs: ForebayFileSystem) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    sink = io.BytesIO()
    torch.save({"weight": torch.arange(300_000, dtype=torch.float32)}, sink)
    publish("model", {"model.pt": sink.getvalue()})
    fs.invalidate_cache("model")
    with fs.open("model/model.pt") as file:
        loaded = torch.load(file, weights_only=True)
    assert torch.equal(loaded["weight"], torch.arange(300_000, dtype=torch.float32))


def test_zip_csv_and_text_of_the_standard_library(fs: ForebayFileSystem) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for i in range(200):
            archive.writestr(f"{i}.txt", f"text {i}" * 1000)
    publish("archives", {"a.zip": sink.getvalue()})
    fs.invalidate_cache("archives")
    with fs.open("archives/a.zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("117.txt") == b"text 117" * 1000
        assert archive.testzip() is None
    with fs.open("tables/birds.csv", "r") as text:
        assert [row["eggs"] for row in csv.DictReader(text)] == ["3", "2"]


def test_fsspecs_caches_of_whole_files_stand_on_top(fs: ForebayFileSystem, tmp_path: Path) -> None:
    body = bytes(range(256)) * 20_000
    publish("cached", {"x": body})
    fs.invalidate_cache("cached")
    for protocol in ("filecache", "simplecache"):
        over = fsspec.filesystem(protocol, fs=fs, cache_storage=str(tmp_path / protocol), skip_instance_cache=True)
        with over.open("cached/x") as file:
            file.seek(3 * MIB)
            assert file.read(1000) == body[3 * MIB : 3 * MIB + 1000]
