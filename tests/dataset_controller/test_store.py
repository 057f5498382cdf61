"""The state file: versions, events, and what survives."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from cache_engine.access import Access
from cache_engine.errors import InvalidValue, NotFound
from dataset_controller.resources import DatasetStatus
from dataset_controller.store import Event, Expired, Store
from tests.dataset_controller.build import dataset, snapshot

NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Store:
    return Store(path)


def status(files: int) -> DatasetStatus:
    return DatasetStatus.model_validate({"files": files})


def test_created_configured_unchanged(store: Store) -> None:
    first = store.apply([dataset(owners=1)], NOW)[0]
    again = store.apply([dataset(owners=1)], NOW)[0]
    changed = store.apply([dataset(owners=2)], NOW)[0]
    assert [first.change, again.change, changed.change] == ["created", "unchanged", "configured"]
    assert [one.dataset.metadata.generation for one in (first, again, changed)] == [1, 1, 2]
    assert first.dataset.metadata.uid == changed.dataset.metadata.uid != ""
    assert first.dataset.metadata.resource_version == again.dataset.metadata.resource_version


def test_labels_change_the_object_and_not_its_generation(store: Store) -> None:
    store.apply([dataset()], NOW)
    labelled = dataset().model_copy(
        update={"metadata": dataset().metadata.model_copy(update={"labels": {"team": "vision"}})}
    )
    applied = store.apply([labelled], NOW)[0]
    assert (applied.change, applied.dataset.metadata.generation) == ("configured", 1)


def test_a_spec_change_keeps_the_status(store: Store) -> None:
    stored = store.apply([dataset()], NOW)[0].dataset
    store.write_status("demo", stored.metadata.uid, status(5))
    assert store.apply([dataset(owners=2)], NOW)[0].dataset.status.files == 5


def test_a_status_that_changes_nothing_is_not_written(store: Store) -> None:
    uid = store.apply([dataset()], NOW)[0].dataset.metadata.uid
    assert store.write_status("demo", uid, status(5))
    version = store.version
    assert not store.write_status("demo", uid, status(5))
    assert not store.write_status("demo", "another-uid", status(6))
    assert store.version == version


def test_events_are_in_order_and_say_what_happened(path: Path) -> None:
    heard: list[Event] = []
    store = Store(path, heard.append)
    uid = store.apply([dataset("a"), dataset("b")], NOW)[0].dataset.metadata.uid
    store.write_status("a", uid, status(5))
    store.delete("b")
    assert [(event.type, event.name) for event in heard] == [
        ("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"),
    ]  # fmt: skip
    assert store.events(0) == heard
    assert store.events(heard[1].version) == heard[2:]
    assert heard[2].object["metadata"]["resourceVersion"] == str(heard[2].version)


def test_a_watcher_that_lags_too_far_must_list_anew(path: Path) -> None:
    store = Store(path, kept_events=3)
    uid = store.apply([dataset()], NOW)[0].dataset.metadata.uid
    for files in range(5):
        store.write_status("demo", uid, status(files + 1))
    assert len(store.events(store.version - 3)) == 3
    with pytest.raises(Expired):
        store.events(1)
    with pytest.raises(Expired):
        store.events(store.version + 1)


def test_all_or_nothing(store: Store) -> None:
    broken = dataset("b").model_copy(update={"metadata": None})
    with pytest.raises(AttributeError):
        store.apply([dataset("a"), broken], NOW)
    assert store.datasets() == []
    assert store.events(0) == []


def test_everything_survives_a_reopen_without_close(path: Path) -> None:
    first = Store(path)
    uid = first.apply([dataset()], NOW)[0].dataset.metadata.uid
    taken = snapshot(dataset())
    first.keep_snapshot(uid, taken)
    access = first.publish(Access("demo", uid, 0, None, mounts=taken.mounts))
    second = Store(path)
    assert second.get("demo") == first.get("demo")
    assert second.snapshot(uid) == taken
    assert second.publication(uid) == access
    assert second.version == first.version


def test_epochs_grow_over_deletion_and_restart(path: Path) -> None:
    store = Store(path)
    uid = store.apply([dataset()], NOW)[0].dataset.metadata.uid
    before = store.publish(Access("demo", uid, 0, None)).epoch
    store.delete("demo")
    assert store.epochs() == {}
    store.close()
    store = Store(path)
    uid = store.apply([dataset()], NOW)[0].dataset.metadata.uid
    assert store.publish(Access("demo", uid, 0, None)).epoch > before


def test_the_manifest_before_stays_needed(store: Store) -> None:
    uid = store.apply([dataset()], NOW)[0].dataset.metadata.uid
    for digest in ("a" * 64, "b" * 64, "b" * 64, "c" * 64):
        assert store.keep_snapshot(uid, replace(snapshot(dataset()), digest=digest))
    assert store.needed_manifests() == {"b" * 64, "c" * 64}
    store.delete("demo")
    assert store.needed_manifests() == set()
    assert not store.keep_snapshot(uid, snapshot(dataset()))


def test_what_is_not_there(store: Store) -> None:
    for call in (store.get, store.delete):
        with pytest.raises(NotFound, match="there is no Dataset 'demo'"):
            call("demo")


def test_a_file_that_is_no_state_file(path: Path) -> None:
    path.write_bytes(b"not a database, and long enough to look at" * 100)
    with pytest.raises(InvalidValue, match="is not a state file"):
        Store(path)


def test_a_newer_format_is_left_alone(path: Path) -> None:
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(InvalidValue, match="has format 99"):
        Store(path)
