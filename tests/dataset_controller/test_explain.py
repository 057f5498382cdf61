"""`explain` in numbers."""

from dataset_controller.explain import explain
from tests.dataset_controller.build import NOW, dataset, failure, observed, snapshot, worker

DEMO = dataset()


def says(**fields: object) -> list[str]:
    return [f"{'!' if line['wrong'] else ' '} {line['says']}" for line in explain(observed(DEMO, **fields))["lines"]]


def test_what_is_wrong_stands_first() -> None:
    lines = says(snapshot=snapshot(DEMO), workers=(worker(0, cached=250, capacity=100),))
    assert [line[0] for line in lines] == sorted((line[0] for line in lines), key=lambda mark: mark != "!")


def test_why_cold() -> None:
    lines = says(snapshot=snapshot(DEMO, bytes=1000), workers=(worker(0, cached=250, near=30),))
    expected = (
        "! 25 %: 250 B of 1000 B are held, 30 B more as near copies; 750 B are read from the source when first needed"
    )
    assert expected in lines


def test_why_it_can_never_be_warm() -> None:
    lines = says(snapshot=snapshot(DEMO, bytes=1000), workers=(worker(0, capacity=600),))
    assert "! 1 worker with 600 B for 1000 B: 400 B too little; raise --cache-size or --workers" in lines


def test_when_the_next_try_comes() -> None:
    lines = says(failure=failure(DEMO, attempts=4, at=NOW - 3))
    assert any(line.startswith("! try 5 comes in 5.0s, at 1970-01-12T13:46:45Z") for line in lines)


def test_which_worker_is_away_and_what_happens_then() -> None:
    lines = says(workers=(worker(0), worker(1, "silent", silent_for=12.0)))
    assert "! w1 on n is silent, not heard for 12.0s; after 30 s its data is given to others" in lines
