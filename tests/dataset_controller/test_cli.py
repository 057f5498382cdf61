"""The verbs as a user types them, against a running controller; each test leaves no Dataset behind."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dataset_controller.cli import main
from tests.dataset_controller.build import document
from tests.dataset_controller.forebay import Forebay

FIELDS = "write one of credentials, exclude, include, options, path, url"
HEAD = "apiVersion: data.forebay.io/v1alpha1\nkind: Dataset\nmetadata: {name: demo}\n"


@pytest.fixture
def fb(running: Forebay) -> Iterator[Forebay]:
    yield running
    if names := [one["metadata"]["name"] for one in running.json("get", "datasets")["items"]]:
        running.run("delete", *names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "-:1:5: not valid YAML: expected the node content, but found '<stream end>'"),
        ("", "- holds no document; write one with kind: Dataset"),
        ("just text", "document 1: document is a text; write a mapping with kind: Dataset"),
        (
            HEAD + "spec: {mounts: [{url: 'file:///x', ulr: y}]}",
            f"Dataset demo: spec.mounts[0].ulr is not a field, did you mean url? {FIELDS}",
        ),
        (
            HEAD + "spec: {mounts: [{url: 'ftp://x'}]}",
            "Dataset demo: spec.mounts[0].url is refused: 'ftp://x' is no URL of a source; write file:///directory",
        ),
        (
            HEAD + "spec: {mounts: [{url: 'file:///x', options: {zone: a}}]}",
            "Dataset demo: spec.mounts[0].options is refused: 'zone' is no option of file://; it has region",
        ),
        (
            HEAD + "spec: {mounts: [{url: 'file:///x', credentials: {username: {env: NOT_SET_HERE}}}]}",
            "Dataset demo: spec.mounts[0].credentials cannot be resolved:"
            " username refers to the variable NOT_SET_HERE, which is not set",
        ),
        (
            HEAD + "spec: {mounts: [{url: 'file:///x'}], snapshot: {refresh: interval, interval: 5 min}}",
            'Dataset demo: spec.snapshot.interval is "5 min", which is not allowed;'
            " write a duration of whole seconds like 30s, 5m or 1h30m",
        ),
        (
            HEAD + "spec: {mounts: [{url: 'file:///x'}], owners: 2GiB}",
            'Dataset demo: spec.owners is "2GiB", which is not allowed; write a whole number from 1 to 1024',
        ),
        (
            HEAD.replace("Dataset", "Warmup") + "spec: {mounts: [{url: 'file:///x'}]}",
            'Dataset demo: kind is "Warmup", which is not allowed; write Dataset',
        ),
    ],
)
def test_apply_refuses_in_one_sentence_and_stores_nothing(fb: Forebay, text: str, expected: str) -> None:
    assert fb.run("apply", "-f", "-", text=text, code=2) == f"forebay: {expected}\n"
    assert fb.json("get", "datasets")["items"] == []


def test_one_wrong_document_keeps_the_right_one_out(fb: Forebay, tmp_path: Path) -> None:
    good, bad = document("good", "file:///x"), document("bad", "file:///x", owners=0)
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all([good, bad]))
    fb.run("apply", "-f", str(tmp_path / "two.yaml"), code=2)
    assert fb.json("get", "datasets")["items"] == []


def test_created_configured_unchanged(fb: Forebay, tmp_path: Path) -> None:
    url = f"file://{fb.source}"
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all([document("a", url), document("b", url)]))
    words = ("apply", "-f", str(tmp_path / "two.yaml"))
    assert fb.run(*words) == "dataset/a created\ndataset/b created\n"
    assert fb.run(*words) == "dataset/a unchanged\ndataset/b unchanged\n"
    assert fb.apply("b", nearCopies="never") == "dataset/b configured\n"
    assert [item["change"] for item in fb.json(*words)["items"]] == ["unchanged", "configured"]


def test_what_get_prints_can_be_applied(fb: Forebay) -> None:
    fb.apply("demo", "--wait")
    printed = fb.run("get", "datasets", "demo", "-o", "yaml")
    assert fb.run("apply", "-f", "-", text=printed) == "dataset/demo unchanged\n"


def test_apply_wait_says_what_it_waited_for(fb: Forebay) -> None:
    said = fb.apply("demo", "--wait")
    assert said.startswith("dataset/demo created, Ready: 1 file, 5 B, taken at ")
    assert said.endswith("; 2 of 2 workers answer\n")


def test_apply_wait_fails_at_once_where_only_a_person_can_help(fb: Forebay, tmp_path: Path) -> None:
    (tmp_path / "denied").mkdir()
    (tmp_path / "denied" / ".outcome").write_text("denied")
    text = yaml.safe_dump(document("demo", f"file://{tmp_path}/denied"))
    message = fb.run("apply", "-f", "-", "--wait", text=text, code=1)
    assert message.startswith(
        "forebay: dataset/demo is Failed: SourceDenied: the source refuses to list; failed 1 time"
    )


def test_apply_wait_ends_in_time(fb: Forebay, tmp_path: Path) -> None:
    (tmp_path / "down").mkdir()
    (tmp_path / "down" / ".outcome").write_text("down")
    text = yaml.safe_dump(document("demo", f"file://{tmp_path}/down"))
    message = fb.run("apply", "-f", "-", "--wait", "--timeout", "300ms", text=text, code=1)
    assert "forebay: dataset/demo is Pending after 300ms: SourceUnavailable: the source does not answer" in message


def test_tables_for_people(fb: Forebay) -> None:
    assert fb.run("get", "datasets") == "No Datasets yet; declare one with `forebay apply -f dataset.yaml`.\n"
    fb.apply("demo", "--wait")
    header, row = fb.run("get", "datasets").splitlines()
    assert header.split() == ["NAME", "PHASE", "FILES", "SIZE", "CACHED", "WORKERS", "AGE"]
    assert row.split()[:7] == ["demo", "Ready", "1", "5", "B", "0%", "2/2"]
    header, *rows = fb.run("get", "workers").splitlines()
    assert header.split() == ["ID", "STATE", "NODE", "USED", "CAPACITY", "RESTARTS", "PID", "URL"]
    assert [line.split()[:3] for line in rows] == [["w0", "ready", "left"], ["w1", "ready", "right"]]


def test_documents_for_programs(fb: Forebay) -> None:
    fb.apply("demo", "--wait")
    assert yaml.safe_load(fb.run("get", "ds", "demo", "-o", "yaml")) == fb.json("get", "dataset", "demo")
    assert fb.json("get", "worker", "w1")["id"] == "w1"
    assert fb.json("explain", "demo")["phase"] == "Ready"
    assert fb.json("describe", "demo")["spec"]["owners"] == 1
    assert fb.json("refresh", "demo")["files"] == 1
    assert fb.json("delete", "demo")["items"][0]["metadata"]["name"] == "demo"


def test_describe_and_explain(fb: Forebay) -> None:
    fb.apply("demo", "--wait", owners=2)
    described = fb.run("describe", "demo")
    for line in (
        "Phase:       Ready",
        "Files:       1",
        "Workers:     2 of 2 ready, 2 owners",
        "Refresh:     onChange",
    ):
        assert line in described.splitlines()
    explained = fb.run("explain", "demo").splitlines()
    assert explained[0] == "demo is Ready"
    assert (
        explained[1]
        == "! cache: 0 %: 0 B of 10 B in 2 copies are held; 10 B are read from the source when first needed"
    )


def test_refresh_prints_what_changed(fb: Forebay, tmp_path: Path) -> None:
    for name in ("kept", "changed", "gone"):
        (tmp_path / name).write_bytes(b"1")
    fb.run("apply", "-f", "-", "--wait", text=yaml.safe_dump(document("demo", f"file://{tmp_path}")))
    (tmp_path / "changed").write_bytes(b"22")
    (tmp_path / "gone").unlink()
    (tmp_path / "new1").write_bytes(b"1")
    (tmp_path / "new2").write_bytes(b"1")
    assert fb.run("refresh", "demo") == "demo: 2 added, 1 changed, 1 gone; now 4 files, 5 B\n"


def test_a_refresh_of_a_source_that_is_down_ends_with_its_exit_code(fb: Forebay, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    fb.run("apply", "-f", "-", "--wait", text=yaml.safe_dump(document("demo", f"file://{tmp_path}")))
    (tmp_path / ".outcome").write_text("down")
    assert fb.run("refresh", "demo", code=6) == "forebay: the source does not answer\n"


def test_deleted_is_gone_from_the_epochs_that_workers_hear(fb: Forebay) -> None:
    fb.apply("demo", "--wait")
    epochs = fb.home / "workers" / "w0" / "epochs.json"
    fb.until(lambda: "demo" in json.loads(epochs.read_text()))
    assert fb.run("delete", "demo") == "dataset/demo deleted\n"
    fb.until(lambda: json.loads(epochs.read_text()) == {})
    assert fb.run("delete", "demo", code=3).startswith("forebay: there is no Dataset 'demo'")


@pytest.mark.parametrize("verb", ["describe", "explain", "refresh", "delete"])
def test_a_dataset_that_is_not_there(fb: Forebay, verb: str) -> None:
    expected = "forebay: there is no Dataset 'nope'; `forebay get datasets` lists those that exist\n"
    assert fb.run(verb, "nope", code=3) == expected


def test_a_worker_that_is_not_there(fb: Forebay) -> None:
    assert fb.run("get", "worker", "w9", code=3) == "forebay: there is no worker 'w9'; there are w0, w1\n"


def test_a_file_that_cannot_be_read(fb: Forebay, tmp_path: Path) -> None:
    message = fb.run("apply", "-f", str(tmp_path / "no.yaml"), code=2)
    assert message == f"forebay: {tmp_path}/no.yaml cannot be read: No such file or directory\n"


def test_help_names_every_verb_and_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for verb in ("up", "down", "apply", "get", "describe", "delete", "refresh", "explain"):
        assert f"    {verb} " in said


def test_the_command_line_loads_nothing_heavy() -> None:
    """A verb that only asks must not pay for a server: this is what keeps `forebay --help` at a tenth of a second."""
    names = "pydantic fastapi uvicorn yaml aiohttp asyncio sqlite3 numpy fsspec prometheus_client http.client"
    heavy = tuple(names.split())
    code = (
        "import sys; from dataset_controller.cli import make_parser, PACKAGES; make_parser(PACKAGES);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
