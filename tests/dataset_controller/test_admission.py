"""What `apply` refuses beyond the form of a field."""

from typing import Any

import pytest

from dataset_controller.admission import admit
from dataset_controller.resources import Refused
from tests.dataset_controller.build import document
from tests.dataset_controller.fake_forebay.commands import checks

CHECKS = checks({"SET": "value"})


def refusals(*bodies: Any) -> list[str]:
    with pytest.raises(Refused) as caught:
        admit({"kind": "List", "items": list(bodies)}, CHECKS)
    return [str(problem) for problem in caught.value.problems]


def mounted(**fields: Any) -> dict[str, Any]:
    return document() | {"spec": {"mounts": [{"url": "file:///data"} | fields]}}


def test_one_document_or_a_list() -> None:
    assert [one.metadata.name for one in admit(document("a"), CHECKS)] == ["a"]
    items = {"kind": "List", "items": [document("a"), document("b")]}
    assert [one.metadata.name for one in admit(items, CHECKS)] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            mounted(url="ftp://x"),
            "Dataset demo: spec.mounts[0].url is refused: 'ftp://x' is no URL of a source; write file:///directory",
        ),
        (
            mounted(options={"zone": "a"}),
            "Dataset demo: spec.mounts[0].options is refused: 'zone' is no option of file://; it has region",
        ),
        (
            mounted(credentials={"username": {"env": "UNSET"}}),
            "Dataset demo: spec.mounts[0].credentials cannot be resolved:"
            " username refers to the variable UNSET, which is not set",
        ),
        ({"kind": "Dataset"}, "document 1: apiVersion is missing; write data.forebay.io/v1alpha1"),
        ({"kind": "List", "items": 1}, "document 1: apiVersion is missing; write data.forebay.io/v1alpha1"),
    ],
)
def test_the_field_and_the_reason(body: Any, expected: str) -> None:
    assert refusals(body)[0] == expected


def test_resolvable_credentials_pass() -> None:
    assert admit(mounted(credentials={"username": {"env": "SET"}}), CHECKS)


def test_all_documents_are_checked_and_names_must_differ() -> None:
    found = refusals(document("a"), document("a"), document("b", url="x://"))
    assert found == [
        "Dataset b: spec.mounts[0].url is refused: 'x://' is no URL of a source; write file:///directory",
        "Dataset a: metadata.name stands in more than one document; give each a name of its own",
    ]


@pytest.mark.parametrize("body", [{"kind": "List"}, {"kind": "List", "items": []}])
def test_an_empty_list_is_refused(body: Any) -> None:
    with pytest.raises(Refused, match="items is missing or empty"):
        admit(body, CHECKS)
