"""The Dataset resource: what is accepted, and the exact sentence for what is not."""

import json
from typing import Any

import pytest

from dataset_controller.resources import Refused, read_dataset
from tests.dataset_controller.build import document

URL_FORM = "write a URL like s3://bucket/prefix, oss://bucket/prefix, https://host/path or file:///directory"
COUNT_FORM = "write a whole number from 1 to 1024"
NAME_FORM = "write 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends"
DURATION_FORM = "write a duration of whole seconds like 30s, 5m or 1h30m"
PATH_FORM = (
    "write a relative path like images/train without a leading or trailing slash and without . or .., or nothing"
)
CREDENTIALS_FORM = (
    "write references of accessKeyId, secretAccessKey, sessionToken, bearerToken, username or password, "
    "each like {env: VARIABLE} or {file: /path}"
)


def sentences(body: Any) -> list[str]:
    with pytest.raises(Refused) as caught:
        read_dataset(body)
    return [str(problem) for problem in caught.value.problems]


def mounted(**fields: Any) -> dict[str, Any]:
    return document() | {"spec": {"mounts": [{"url": "s3://b/p"} | fields]}}


def test_defaults() -> None:
    spec = read_dataset(document()).spec
    assert (spec.replicas, spec.owners, spec.near_copies) == (None, 1, "complete")
    assert (spec.snapshot.refresh, spec.snapshot.interval) == ("onChange", 300)


def test_all_fields_arrive() -> None:
    body = document(replicas=3, owners=2, nearCopies="never", snapshot={"refresh": "interval", "interval": "1h30m"})
    body["spec"]["mounts"][0] |= {
        "path": "images/train",
        "options": {"region": "eu-1"},
        "credentials": {"accessKeyId": {"env": "KEY"}, "secretAccessKey": {"file": "/run/secret"}},
        "include": ["*.jpg"],
        "exclude": ["tmp/**"],
    }
    spec = read_dataset(body).spec
    (mount,) = spec.mount_access()
    assert spec.snapshot.interval == 5400
    assert mount.credentials == {"accessKeyId": {"env": "KEY"}, "secretAccessKey": {"file": "/run/secret"}}
    assert (mount.path, mount.options, mount.include, mount.exclude) == (
        "images/train", {"region": "eu-1"}, ("*.jpg",), ("tmp/**",),
    )  # fmt: skip


def test_what_is_printed_can_be_applied_again() -> None:
    body = document(replicas=2, snapshot={"refresh": "interval", "interval": "90s"})
    first = read_dataset(body)
    assert read_dataset(json.loads(json.dumps(first.to_json()))) == first


def test_equal_durations_are_equal_specs() -> None:
    specs = [read_dataset(document(snapshot={"interval": text})).spec for text in ("60s", "1m", "0.5m30s")]
    assert specs[0] == specs[1] == specs[2]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], ["document is a list; write a mapping with kind: Dataset"]),
        (
            {},
            [
                "apiVersion is missing; write data.forebay.io/v1alpha1",
                "kind is missing; write Dataset",
                "metadata is missing; write at least {name: NAME}",
                "spec is missing; write at least {mounts: [{url: URL}]}",
            ],
        ),
        (
            document() | {"apiVersion": "v1"},
            ['apiVersion is "v1", which is not allowed; write data.forebay.io/v1alpha1'],
        ),
        (document() | {"kind": "Runtime"}, ['kind is "Runtime", which is not allowed; write Dataset']),
        (document("A_b"), [f'metadata.name is "A_b", which is not allowed; {NAME_FORM}']),
        (document("a\n"), [f'metadata.name is "a\\n", which is not allowed; {NAME_FORM}']),
        (document("x" * 64), [f'metadata.name is "{"x" * 59}..., which is not allowed; {NAME_FORM}']),
        (
            document(replica=2),
            ["spec.replica is not a field, did you mean replicas?"
             " write one of mounts, nearCopies, owners, replicas, snapshot"],
        ),
        (document(near_copies="never"), [
            "spec.near_copies is not a field, did you mean nearCopies?"
            " write one of mounts, nearCopies, owners, replicas, snapshot"
        ]),
        (document(owners=0), [f"spec.owners is 0, which is not allowed; {COUNT_FORM}"]),
        (document(owners="two"), [f'spec.owners is "two", which is not allowed; {COUNT_FORM}']),
        (document(owners=1.5), [f"spec.owners is 1.5, which is not allowed; {COUNT_FORM}"]),
        (document(owners=True), [f"spec.owners is true, which is not allowed; {COUNT_FORM}"]),
        (document(replicas=2, owners=3), [
            "spec.owners is 3, more than spec.replicas; write a whole number from 1 to 2"
        ]),
        (
            document(nearCopies="always"),
            ['spec.nearCopies is "always", which is not allowed; write never, onRead or complete'],
        ),
        (
            document(snapshot={"refresh": "daily"}),
            ['spec.snapshot.refresh is "daily", which is not allowed; write never, onChange or interval'],
        ),
        (
            document(snapshot={"interval": "5 parsecs"}),
            [f'spec.snapshot.interval is "5 parsecs", which is not allowed; {DURATION_FORM}'],
        ),
        (
            document(snapshot={"interval": 300}),
            [f"spec.snapshot.interval is 300, which is not allowed; {DURATION_FORM}"],
        ),
        (
            document(snapshot={"interval": "0s"}),
            [f'spec.snapshot.interval is "0s", which is not allowed; {DURATION_FORM}'],
        ),
        (
            document() | {"spec": {"mounts": []}},
            [
                "spec.mounts is a list, which is not allowed;"
                " write a list of at least one mount like [{url: s3://bucket/prefix}]"
            ],
        ),
        (
            document() | {"spec": {"mounts": [{"ulr": "s3://b"}]}},
            [
                f"spec.mounts[0].url is missing; {URL_FORM}",
                "spec.mounts[0].ulr is not a field, did you mean url?"
                " write one of credentials, exclude, include, options, path, url",
            ],
        ),
        (mounted(url=""), [f'spec.mounts[0].url is "", which is not allowed; {URL_FORM}']),
        (mounted(url=None), [f"spec.mounts[0].url is empty, which is not allowed; {URL_FORM}"]),
        (mounted(path="/abs"), [f'spec.mounts[0].path is "/abs", which is not allowed; {PATH_FORM}']),
        (mounted(path="a/../b"), [f'spec.mounts[0].path is "a/../b", which is not allowed; {PATH_FORM}']),
        (
            mounted(options={"timeout": 30}),
            ["spec.mounts[0].options.timeout is a number, which is not allowed;"
             " write names with text values, numbers in quotes: {region: eu-1, timeout: '30'}"],
        ),
        (
            mounted(credentials={"user": {"env": "U"}}),
            [f"spec.mounts[0].credentials.user is not known; {CREDENTIALS_FORM}"],
        ),
        (
            mounted(credentials={"username": {"env": "U", "file": "/u"}}),
            ["spec.mounts[0].credentials.username must have exactly one of {env: VARIABLE} or {file: /path}"],
        ),
        (
            document() | {"spec": {"mounts": [{"url": "s3://a"}, {"url": "s3://b"}]}},
            ["spec.mounts[1].path is '' like that of spec.mounts[0]; give each mount a path of its own"],
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_the_allowed_form(body: Any, expected: list[str]) -> None:
    assert sentences(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        mounted(credentials={"secretAccessKey": "hunter2-secret"}),
        mounted(credentials={"secretAccessKey": {"env": "hunter2-secret"}}),
        mounted(credentials={"secretAccessKey": {"value": "hunter2-secret"}}),
        mounted(options={"secret": {"x": "hunter2-secret"}}),
        mounted(url="s3://user:hunter2-secret@host/\x01"),
    ],
)
def test_a_secret_typed_in_the_wrong_place_is_not_repeated(body: Any) -> None:
    assert "hunter2" not in "\n".join(sentences(body))


def test_values_that_json_cannot_carry_are_refused() -> None:
    assert "document holds a value that JSON cannot carry" in sentences(document(owners={1, 2}))[0]


def test_a_field_that_may_be_left_out_says_its_form_too() -> None:
    assert sentences(document(replicas=-1)) == [f"spec.replicas is -1, which is not allowed; {COUNT_FORM}"]
    wrong = mounted(credentials={"accessKeyId": {"env": "1st"}})
    assert sentences(wrong) == [
        "spec.mounts[0].credentials.accessKeyId.env is a text, which is not allowed; "
        "write the name of an environment variable"
    ]


def test_the_beginning_of_a_field_is_nearer_than_a_word_that_looks_alike() -> None:
    (said,) = sentences(document(near="never"))
    assert said.startswith("spec.near is not a field, did you mean nearCopies?")
