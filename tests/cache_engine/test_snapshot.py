"""A snapshot is whole or it is not there, and why it is not is told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cache_engine.access import MountAccess
from cache_engine.errors import (
    AccessDenied,
    CacheEngineError,
    InvalidValue,
    MissingCredential,
    NotFound,
    SourceThrottled,
    SourceUnavailable,
)
from cache_engine.snapshot import EmptySnapshot, ListingCutShort, take
from cache_engine.source import Page
from tests.cache_engine.listings import ETAG, ScriptedSource, pages_of, plain

HERE = MountAccess(url="s3://b")


def one_page(*keys: bytes) -> Page:
    return pages_of(plain(keys))[0]


def refused(
    tmp_path: Path, kind: type[CacheEngineError], *mounts: tuple[MountAccess, ScriptedSource]
) -> CacheEngineError:
    with pytest.raises(kind) as caught:
        take(mounts, tmp_path / "snapshot")
    assert os.listdir(tmp_path) == [], "no file where no snapshot is"
    return caught.value


def test_all_mounts_are_listed_filtered_and_counted(tmp_path: Path) -> None:
    seen: list[int] = []
    images = MountAccess(url="s3://b", path="img", include=("**/*.jpg",), exclude=("tmp/**",))
    first = ScriptedSource("s3://b", one_page(b"1.jpg", b"2.txt"), Page(), one_page(b"a/3.jpg", b"tmp/4.jpg"))
    second = ScriptedSource("oss://c", one_page(b"readme"))
    manifest = take([(images, first), (MountAccess(url="oss://c"), second)], tmp_path / "snapshot", seen.append)
    assert manifest.paths_between(0, len(manifest)) == [b"img/1.jpg", b"img/a/3.jpg", b"readme"]
    assert seen == [1, 1, 2, 3]
    assert manifest.sources == ("s3://b", "oss://c") and manifest.mount_paths == ("img", "")
    assert manifest.version(1) == ETAG % 0, "columns stay in step when a page is filtered"


@pytest.mark.case("A24")
def test_denied_empty_cut_short_and_down_are_four_outcomes(tmp_path: Path) -> None:
    down = SourceUnavailable("connection refused")
    denied = refused(tmp_path, AccessDenied, (HERE, ScriptedSource("s3://b", AccessDenied("403"))))
    empty = refused(tmp_path, EmptySnapshot, (HERE, ScriptedSource("s3://b", Page())))
    short = refused(tmp_path, ListingCutShort, (HERE, ScriptedSource("s3://b", one_page(b"x"), down)))
    gone = refused(tmp_path, SourceUnavailable, (HERE, ScriptedSource("s3://b", down)))
    assert not isinstance(gone, ListingCutShort) and not isinstance(empty, SourceUnavailable)
    assert [fault.retryable for fault in (denied, empty, short, gone)] == [False, False, True, True]
    assert len({type(fault) for fault in (denied, empty, short, gone)}) == 4
    assert isinstance(short, ListingCutShort) and short.files == 1 and short.__cause__ is down
    assert all("s3://b" in str(fault) for fault in (denied, empty, short, gone))


def test_a_denial_in_the_middle_of_a_listing_is_a_denial(tmp_path: Path) -> None:
    refused(tmp_path, AccessDenied, (HERE, ScriptedSource("s3://b", one_page(b"x"), AccessDenied("expired"))))
    refused(tmp_path, MissingCredential, (HERE, ScriptedSource("s3://b", MissingCredential("main"))))


def test_a_throttled_listing_says_when_to_come_back(tmp_path: Path) -> None:
    fault = refused(tmp_path, SourceThrottled, (HERE, ScriptedSource("s3://b", SourceThrottled("503", 7.0))))
    assert isinstance(fault, SourceThrottled) and fault.retry_after == 7.0


def test_an_absent_bucket_is_not_an_empty_one(tmp_path: Path) -> None:
    refused(tmp_path, NotFound, (HERE, ScriptedSource("s3://b", NotFound("NoSuchBucket"))))


def test_globs_that_leave_nothing_are_named(tmp_path: Path) -> None:
    access = MountAccess(url="s3://b", include=("*.py",))
    fault = refused(tmp_path, EmptySnapshot, (access, ScriptedSource("s3://b", one_page(b"d/x.py", b"d/y.py"))))
    assert "2 objects" in str(fault) and "*.py" in str(fault)


def test_one_empty_mount_among_full_ones_is_no_snapshot(tmp_path: Path) -> None:
    full = MountAccess(url="s3://b", path="full")
    fault = refused(
        tmp_path, EmptySnapshot, (full, ScriptedSource("s3://b", one_page(b"x"))), (HERE, ScriptedSource("s3://e"))
    )
    assert "s3://e" in str(fault)


@pytest.mark.parametrize("access", [MountAccess(url="s3://b", include=("[",)), MountAccess(url="s3://b", path="../up")])
def test_a_wrong_glob_or_mount_path_is_refused_before_any_listing(tmp_path: Path, access: MountAccess) -> None:
    refused(tmp_path, InvalidValue, (access, ScriptedSource("s3://b", SourceUnavailable("was listed"))))


def test_a_page_of_unequal_columns_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, InvalidValue, (HERE, ScriptedSource("s3://b", Page([b"x"], [1], [], [0]))))
