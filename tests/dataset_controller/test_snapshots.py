"""Listings in flight, and the real listing over file:// mounts."""

import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cache_engine.access import MountAccess
from cache_engine.errors import AccessDenied, MissingCredential, NotFound, SourceThrottled, SourceUnavailable
from cache_engine.manifest import Manifest
from cache_engine.snapshot import EmptySnapshot, ListingCutShort
from dataset_controller.observed import Failure, Snapshot, Taking
from dataset_controller.snapshots import Difference, Listed, Snapshots, failure_of, real_take, reason_of, sweep

OLD = (MountAccess("file:///old"),)
NEW = (MountAccess("file:///new"),)


class Listings:
    """A listing that ends when the test says so, with what the test says."""

    def __init__(self) -> None:
        self.ends: dict[str, queue.Queue[Listed | Exception]] = {
            OLD[0].url: queue.Queue(),
            NEW[0].url: queue.Queue(),
        }
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.outcomes: list[Snapshot | Failure] = []

    def __call__(self, mounts: tuple[MountAccess, ...], directory: Path, before: Path | None) -> Listed:
        outcome = self.ends[mounts[0].url].get(timeout=10)
        if isinstance(outcome, Exception):
            raise outcome
        path = directory / f".taking-{outcome.digest}"
        path.write_bytes(b"")
        return replace(outcome, path=path)

    def start(self, snapshots: Snapshots, mounts: tuple[MountAccess, ...]) -> None:
        def done(snapshot: Snapshot, difference: Difference) -> None:
            self.outcomes.append(snapshot)

        def failed(failure: Failure, error: Exception) -> None:
            self.outcomes.append(failure)

        snapshots.start("uid", Taking(1.0, mounts), None, done, failed)

    def end(self, mounts: tuple[MountAccess, ...], outcome: Listed | Exception) -> None:
        """Let it end, and do on this thread what it posted."""
        self.ends[mounts[0].url].put(outcome)
        self.posted.get(timeout=10)()


def listed(digest: str) -> Listed:
    return Listed(digest, 1, 5, Path("/m"), Difference())


@pytest.fixture
def listings() -> Listings:
    return Listings()


@pytest.fixture
def snapshots(listings: Listings, tmp_path: Path) -> Snapshots:
    return Snapshots(listings, tmp_path, listings.posted.put, lambda: 2.0)


def test_one_that_ends_well(listings: Listings, snapshots: Snapshots) -> None:
    listings.start(snapshots, OLD)
    assert snapshots.taking("uid") == Taking(1.0, OLD)
    listings.end(OLD, listed("a"))
    assert snapshots.taking("uid") is None
    assert [getattr(one, "digest", None) for one in listings.outcomes] == ["a"]


def test_a_sweep_while_a_listing_ends_does_not_take_its_manifest(
    listings: Listings, snapshots: Snapshots, tmp_path: Path
) -> None:
    """Another Dataset's outcome sweeps between the end of this listing and its place in the store."""
    listings.start(snapshots, OLD)
    listings.ends[OLD[0].url].put(listed("a"))
    outcome = listings.posted.get(timeout=10)
    assert sweep(tmp_path, set()) == []
    outcome()
    (snapshot,) = listings.outcomes
    assert isinstance(snapshot, Snapshot)
    assert Path(snapshot.path) == tmp_path / "a.manifest"
    assert Path(snapshot.path).exists()


def test_failures_are_counted_until_one_ends_well(listings: Listings, snapshots: Snapshots) -> None:
    for tries in (1, 2):
        listings.start(snapshots, OLD)
        listings.end(OLD, SourceUnavailable("no answer"))
        failure = snapshots.failure("uid")
        assert failure is not None
        assert (failure.attempts, failure.reason, failure.at) == (tries, "SourceUnavailable", 2.0)
    listings.start(snapshots, OLD)
    listings.end(OLD, listed("a"))
    assert snapshots.failure("uid") is None


def test_a_listing_of_mounts_that_have_changed_comes_to_nothing(listings: Listings, snapshots: Snapshots) -> None:
    listings.start(snapshots, OLD)
    listings.start(snapshots, NEW)
    listings.end(OLD, listed("old"))
    assert (listings.outcomes, snapshots.taking("uid")) == ([], Taking(1.0, NEW))
    listings.end(NEW, listed("new"))
    assert [getattr(one, "digest", None) for one in listings.outcomes] == ["new"]


@pytest.mark.parametrize("outcome", [listed("a"), SourceUnavailable("no answer")])
def test_a_forgotten_dataset_hears_nothing_and_leaves_no_file(
    listings: Listings, snapshots: Snapshots, outcome: Listed | Exception, tmp_path: Path
) -> None:
    listings.start(snapshots, OLD)
    snapshots.forget("uid")
    listings.end(OLD, outcome)
    assert (listings.outcomes, snapshots.failure("uid")) == ([], None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [AttributeError("no attribute 'ls'"), RuntimeError("?"), UnicodeError("?")])
def test_a_listing_that_fails_in_a_way_nobody_foresaw_ends_all_the_same(
    listings: Listings, snapshots: Snapshots, error: Exception
) -> None:
    listings.start(snapshots, OLD)
    listings.end(OLD, error)
    assert snapshots.taking("uid") is None
    failure = snapshots.failure("uid")
    assert failure is not None and (failure.reason, failure.retryable) == ("SnapshotFailed", False)


def test_a_snapshot_that_the_store_cannot_keep_is_a_failure_and_tried_again(
    listings: Listings, snapshots: Snapshots
) -> None:
    said: list[Failure] = []

    def done(snapshot: Snapshot, difference: Difference) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    snapshots.start("uid", Taking(1.0, OLD), None, done, lambda failure, error: said.append(failure))
    listings.end(OLD, listed("a"))
    assert snapshots.taking("uid") is None
    assert [(failure.reason, failure.retryable) for failure in said] == [("StateDirectoryFailed", True)]


def test_listings_do_not_hold_up_the_end_of_the_process(listings: Listings, snapshots: Snapshots) -> None:
    listings.start(snapshots, OLD)
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "snapshot-uid"] == [True]
    listings.end(OLD, listed("a"))


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (AccessDenied("x"), "SourceDenied", False),
        (MissingCredential("x"), "CredentialMissing", False),
        (EmptySnapshot("x"), "SourceEmpty", False),
        (ListingCutShort("x", 3), "ListingTruncated", True),
        (SourceUnavailable("x"), "SourceUnavailable", True),
        (SourceThrottled("x", 7.0), "SourceThrottled", True),
        (NotFound("x"), "SourceNotFound", False),
        (OSError(28, "No space left on device"), "StateDirectoryFailed", True),
    ],
)
def test_each_outcome_has_a_reason_of_its_own(error: Exception, reason: str, retryable: bool) -> None:
    failure = failure_of(error, Taking(1.0, OLD), None, 2.0)
    assert (reason_of(error), failure.reason, failure.retryable) == (reason, reason, retryable)
    assert failure.retry_after == getattr(error, "retry_after", None)


def test_the_real_listing_keeps_a_name_of_its_own_and_counts_what_changed(tmp_path: Path) -> None:
    source, manifests = tmp_path / "source", tmp_path / "manifests"
    source.mkdir()
    manifests.mkdir()
    for name in ("kept", "changed", "gone"):
        (source / name).write_bytes(b"1")
    mounts = (MountAccess(f"file://{source}", path="data"),)
    first = real_take({})(mounts, manifests, None)
    assert (first.files, first.bytes, first.difference) == (3, 3, Difference(added=3))
    assert first.path.name.startswith(".taking-")
    assert Manifest.open(first.path).digest == first.digest
    (source / "changed").write_bytes(b"22")
    (source / "gone").unlink()
    (source / "new").write_bytes(b"1")
    second = real_take({})(mounts, manifests, first.path)
    assert second.difference == Difference(added=1, changed=1, gone=1)
    assert real_take({})(mounts, manifests, second.path).difference == Difference()
    for listing in (first, second):
        listing.path.rename(manifests / f"{listing.digest}.manifest")
    assert sweep(manifests, {second.digest}) == [first.digest]
    assert (manifests / f"{second.digest}.manifest").exists()


def test_a_real_listing_that_fails_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for url, kind in ((f"file://{tmp_path}/empty", EmptySnapshot), (f"file://{tmp_path}/none", NotFound)):
        with pytest.raises(kind):
            real_take({})((MountAccess(url),), manifests, None)
    assert list(manifests.iterdir()) == []
