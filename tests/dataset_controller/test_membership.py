"""Who owns a Dataset's data."""

from dataclasses import replace

import pytest

from dataset_controller.membership import EXPELLED_AFTER, chosen, desired_access
from tests.dataset_controller.build import dataset, observed, published, snapshot, worker, workers

DEMO = dataset()


def test_all_workers_by_default_in_the_order_of_their_ids() -> None:
    seen = observed(DEMO, workers=(worker(2), worker(0), worker(1)))
    assert [one.id for one in chosen(DEMO, seen)] == ["w0", "w1", "w2"]


def test_a_worker_that_restarts_keeps_its_place_and_one_that_stays_away_loses_it() -> None:
    away = [replace(worker(1), state="restarting", silent_for=silent) for silent in (10.0, EXPELLED_AFTER)]
    kept, lost = (observed(DEMO, workers=(worker(0), one)) for one in away)
    assert [one.id for one in chosen(DEMO, kept)] == ["w0", "w1"]
    assert [one.id for one in chosen(DEMO, lost)] == ["w0"]


@pytest.mark.case("B27")
def test_a_worker_with_the_same_name_and_a_new_address_is_published_anew() -> None:
    before = desired_access(DEMO, observed(DEMO, workers=(worker(0),)))
    moved = observed(DEMO, workers=(worker(0, url="http://127.0.0.1:9"),), published=published(before))
    assert [member.url for member in desired_access(DEMO, moved).members] == ["http://127.0.0.1:9"]


def test_after_a_restart_of_the_controller_nobody_loses_a_place_while_the_workers_start() -> None:
    before = desired_access(DEMO, observed(DEMO))
    starting = tuple(replace(one, state="starting", url="") for one in workers(3))
    restarted = observed(DEMO, workers=(workers(1)[0], *starting[1:]), published=published(before))
    assert desired_access(DEMO, restarted) == before


def test_replicas_are_spread_over_datasets_and_stay_when_another_worker_comes() -> None:
    names = [f"d{number}" for number in range(60)]
    owners = {}
    for name in names:
        one = dataset(name, replicas=2)
        (first, second) = chosen(one, observed(one, workers=workers(6)))
        owners[name] = {first.id, second.id}
        grown = {each.id for each in chosen(one, observed(one, workers=workers(7)))}
        assert len(grown - owners[name]) <= 1
        assert grown - owners[name] <= {"w6"}
    used = [sum(f"w{number}" in each for each in owners.values()) for number in range(6)]
    assert min(used) >= 8


def test_mounts_are_those_of_the_snapshot_until_there_is_one_of_the_new_ones() -> None:
    other = dataset(url="file:///other")
    access = desired_access(DEMO, observed(DEMO, snapshot=snapshot(other)))
    assert access.mounts == other.spec.mount_access()
    assert desired_access(DEMO, observed(DEMO)).mounts == DEMO.spec.mount_access()
