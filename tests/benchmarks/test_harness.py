"""The arithmetic of the harness, its table and its child processes; no measurement."""

from __future__ import annotations

import json

import pytest

from benchmarks.arms import Meter, in_child
from benchmarks.harness import Options, Question, answers, ask, at_least, at_most, interleave, median_ratio, order, row
from benchmarks.report import figure, line, medians, run, table, to_json


def scripted(name: str, values: list[float], calls: list[str]):
    left = iter(values)

    def arm() -> float:
        calls.append(name)
        return next(left)

    return arm


def test_a_round_runs_there_and_back():
    assert order(["a", "b", "c"], 0, mirrored=True) == ["a", "b", "c", "c", "b", "a"]
    assert order(["a", "b"], 0, mirrored=False) == ["a", "b"]
    assert order(["a", "b"], 1, mirrored=False) == ["b", "a"]


def test_a_rounds_value_is_the_mean_of_its_two_runs():
    calls: list[str] = []
    arms = {"a": scripted("a", [1, 3, 5, 7], calls), "b": scripted("b", [10, 20, 30, 50], calls)}
    assert interleave(arms, 2, mirrored=True) == {"a": [2, 6], "b": [15, 40]}
    assert "".join(calls) == "abba" * 2


def test_a_steady_drift_of_the_machine_cancels():
    speed = iter(range(100, 200))
    arms = {name: lambda: float(next(speed)) for name in ("ours", "peer")}
    measured = interleave(arms, 9, mirrored=True)
    assert measured["ours"] == measured["peer"]


def test_a_ratio_is_the_median_of_the_rounds_own_ratios():
    assert median_ratio([1, 10, 100], [2, 10, 50]) == 1.0
    assert median_ratio([1, 2, 4], [2, 2, 2], less_is_better=True) == 1.0
    assert median_ratio([4, 4, 1], [2, 2, 2], less_is_better=True) == 0.5
    with pytest.raises(ValueError):
        median_ratio([1], [1, 2])


@pytest.mark.parametrize(
    ("goal", "value", "holds"),
    [(at_least(0.8), 0.8, True), (at_least(0.8), 0.79, False), (at_most(2), 2, True), (at_most(2), 2.1, False)],
)
def test_a_goal_is_met_at_its_bound(goal, value, holds):
    assert goal.holds(value) is holds


def test_an_answer_against_a_peer_is_a_ratio_with_the_medians_beside_it():
    arms = {"ours": scripted("o", [4, 4, 8, 8], []), "peer": scripted("p", [5, 5, 10, 10], [])}
    answer = ask(Question("q", "GB/s", arms, at_least(0.8, of="peer"), notes={"size": 7}), Options(rounds=2))
    assert (answer.value, answer.unit, answer.goal, answer.holds) == (0.8, "of peer", ">= 0.8 of peer", True)
    assert answer.peers == {"ours (GB/s)": 6, "peer (GB/s)": 7.5}
    assert answer.conditions["size"] == 7
    assert {"date", "cpus", "kernel", "python", "load", "commit", "rounds"} <= answer.conditions.keys()


def test_an_answer_without_a_peer_is_our_own_median():
    arms = {"ours": scripted("o", [3, 1, 2], [])}
    question = Question("q", "s", arms, at_most(1.5), less_is_better=True, rounds=3, mirrored=False)
    answer = ask(question, Options())
    assert (answer.value, answer.unit, answer.holds) == (2, "s", False)


def test_a_benchmark_keeps_its_set_up_until_the_next_question():
    events: list[str] = []

    def questions(options):
        events.append("up")
        yield Question("q", "s", {"ours": lambda: events.append("run") or 1.0}, rounds=1, mirrored=False)
        events.append("down")
        yield row("r", "B", 5.0)

    assert [answer.question for answer in answers(questions, Options())] == ["q", "r"]
    assert events == ["up", "run", "down"]


def test_one_json_object_a_line_and_an_exit_code_under_strict(capsys):
    def questions(options):
        yield row("q", "MB", 200.123456789, at_most(150), peers={"peer (MB)": 1}, notes={"rounds": options.rounds})

    assert run({"memory": questions}, ["memory", "--json", "--rounds", "3", "--strict"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["question", "unit", "value", "goal", "holds", "peers", "conditions"]
    assert (document["value"], document["goal"], document["holds"]) == (200.123, "<= 150", False)
    assert document["conditions"]["rounds"] == 3
    assert run({"memory": questions}, []) == 0
    with pytest.raises(SystemExit):
        run({"memory": questions}, ["nothing"])


def test_the_table_is_aligned():
    rows = [row("short", "s", 1.5, at_most(2)), row("a longer question", "files/s", 123456.0)]
    lines = table(rows).splitlines()
    assert lines[0].startswith("question") and set(lines[1]) == {"-", " "}
    assert lines[2].index("1.5") + len("1.5") == lines[3].index("123,000") + len("123,000")
    assert "python" in lines[-1]
    assert line(rows[0]) == "short 1.5 s <= 2 yes"
    assert json.loads(to_json(rows[1]))["holds"] is None


def test_a_unit_that_all_medians_share_is_written_once():
    assert medians({"ours (GB/s)": 3.25, "peer (GB/s)": 4}) == "ours 3.25, peer 4 GB/s"
    assert medians({"ours (GB/s)": 3.25, "peer (s)": 4}) == "ours (GB/s) 3.25, peer (s) 4"
    assert medians({"peer": 4}) == "peer 4"
    assert medians({}) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.81234, "0.812"), (12.345, "12.3"), (431.2, "431"), (123456, "123,000"), (-2.5, "-2.5")],
)
def test_figures_are_few(value, text):
    assert figure(value) == text


def test_a_child_returns_its_value_and_what_it_cost():
    ran = in_child("tests.benchmarks.test_harness:noisy_sum", {"numbers": [1, 2, 3]})
    assert ran.value == {"sum": 6}
    assert ran.cpu > 0 and ran.seconds > 0 and ran.peak_rss > 1 << 20


def test_a_child_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="exit code 1"):
        in_child("tests.benchmarks.test_harness:noisy_sum", {"numbers": ["x"]})


def noisy_sum(numbers: list[int]) -> dict[str, int]:
    print("a library may print")
    return {"sum": sum(numbers)}


def test_a_meter_counts_this_process():
    with Meter() as meter:
        sum(range(10_000))
    assert meter.seconds > 0 and meter.cpu >= 0
