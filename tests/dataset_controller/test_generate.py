"""The generated files: up to date, and what Kubernetes, a reader and the code itself would make of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cache_engine.metrics import WorkerMetrics
from dataset_controller import generate
from dataset_controller import metrics as controller_metrics
from dataset_controller.resources import read_dataset
from dataset_controller.structural_schema import KEPT
from tests.dataset_controller.build import document

EXAMPLES = sorted((generate.ROOT / "examples").glob("*.yaml"))
TYPES = {"object": dict, "array": list, "string": str, "integer": int}
PERMITTED = {*KEPT, "format", "properties", "additionalProperties", "items"} - {"x-form"}
"""Keywords of JSONSchemaProps that we use; an `x-kubernetes-` one is permitted too."""


@pytest.fixture(scope="module")
def crd() -> dict[str, Any]:
    return dict(yaml.safe_load(generate.crd()))


@pytest.fixture(scope="module")
def schema(crd: dict[str, Any]) -> dict[str, Any]:
    return dict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, part in node.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


def faults(node: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Where `value` is not what the schema asks for: what an API server refuses or prunes."""
    kind = TYPES[node["type"]]
    if not isinstance(value, kind) or isinstance(value, bool):
        yield f"{path}: no {node['type']}"
    elif kind is dict:
        yield from (f"{path}.{name}: missing" for name in node.get("required", ()) if name not in value)
        for name, part in value.items():
            below = node.get("properties", {}).get(name) or node.get("additionalProperties")
            yield from faults(below, part, f"{path}.{name}") if below else [f"{path}.{name}: unknown"]
    elif kind is list:
        if not node.get("minItems", 0) <= len(value) <= node.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for number, part in enumerate(value):
            yield from faults(node["items"], part, f"{path}[{number}]")
        keys = node.get("x-kubernetes-list-map-keys", ())
        told = [tuple(part.get(key, node["items"]["properties"][key].get("default")) for key in keys) for part in value]
        if keys and len(set(told)) < len(told):
            yield f"{path}: two items with one key"
    else:
        yield from scalar_faults(node, value, path)


def scalar_faults(node: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in node and value not in node["enum"]:
        yield f"{path}: {value!r} is none of {node['enum']}"
    if "pattern" in node and not re.search(node["pattern"], value):
        yield f"{path}: {value!r} does not match"
    size = len(value) if isinstance(value, str) else value
    low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minimum", "maximum")
    if not node.get(low, size) <= size <= node.get(high, size):
        yield f"{path}: {value!r} is out of bounds"


def test_every_generated_file_is_up_to_date() -> None:
    assert generate.different(generate.ROOT) == [], "run `make generate` and commit what it writes"


def test_check_names_what_differs_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "docs/CRDS.md").write_text("edited by hand")
    (tmp_path / "docs/CLI.md").unlink()
    capsys.readouterr()
    assert generate.main(["--check"], tmp_path) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["differs: docs/CRDS.md", "differs: docs/CLI.md"] and "`make generate`" in said[2]
    assert (tmp_path / "docs/CRDS.md").read_text() == "edited by hand"
    assert generate.main([], tmp_path) == 0
    assert generate.different(tmp_path) == []


def test_the_crd_is_named_as_kubernetes_wants_it(crd: dict[str, Any]) -> None:
    spec = crd["spec"]
    assert crd["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert spec["names"]["shortNames"] == ["ds"] and spec["names"]["categories"] == ["forebay"]
    (version,) = spec["versions"]
    assert version["served"] and version["storage"] and version["subresources"] == {"status": {}}
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == ["Phase", "Files", "Size", "Cached", "Workers", "Age"]


def test_printer_columns_point_at_fields(crd: dict[str, Any], schema: dict[str, Any]) -> None:
    known = {path for path, _ in nodes(schema)} | {".metadata.creationTimestamp"}
    assert {column["jsonPath"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]} <= known


def test_the_schema_is_structural(schema: dict[str, Any]) -> None:
    for path, node in nodes(schema):
        unknown = {key for key in node if key not in PERMITTED and not key.startswith("x-kubernetes-")}
        assert not unknown, (path, unknown)
        assert node["type"] in TYPES, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert ("items" in node) == (node["type"] == "array"), path
        assert "default" not in node or not list(faults(node, node["default"])), (path, node["default"])
    assert set(schema["properties"]["metadata"]["properties"]) == {"name"}
    assert not [path for path, node in nodes(schema) if path.startswith(".status") and "default" in node]


def test_keys_of_lists_are_there_in_every_item(schema: dict[str, Any]) -> None:
    lists = {path: node for path, node in nodes(schema) if node["type"] == "array"}
    assert set(lists) == {".spec.mounts", ".spec.mounts[].include", ".spec.mounts[].exclude", ".status.conditions"}
    for path, node in lists.items():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            field = node["items"]["properties"][key]
            assert key in node["items"].get("required", ()) or "default" in field, (path, key)
    assert lists[".spec.mounts"]["x-kubernetes-list-map-keys"] == ["path"]


def test_every_field_says_what_it_means(schema: dict[str, Any]) -> None:
    silent = {path for path, node in nodes(schema) if not node.get("description") and not path.endswith("[]")}
    assert silent == {".metadata"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid_here_and_on_kubernetes(schema: dict[str, Any], path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        read_dataset(body)
        body["metadata"] = {"name": body["metadata"]["name"]}  # the rest of it is Kubernetes' own
        assert list(faults(schema, body)) == []


def test_what_the_controller_stores_is_valid_on_kubernetes(schema: dict[str, Any]) -> None:
    stored = read_dataset(document("demo", "s3://bucket", replicas=3, owners=2)).to_json()
    stored["metadata"] = {"name": "demo"}
    assert list(faults(schema, stored)) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"owners": 0}, ".spec.owners: 0 is out of bounds"),
        ({"replicas": True}, ".spec.replicas: no integer"),
        ({"nearCopies": "always"}, ".spec.nearCopies: 'always' is none of ['never', 'onRead', 'complete']"),
        ({"snapshot": {"interval": "5 min"}}, ".spec.snapshot.interval: '5 min' does not match"),
        ({"mounts": []}, ".spec.mounts: 0 items"),
        ({"mounts": [{"url": "s3://a"}, {"url": "s3://b"}]}, ".spec.mounts: two items with one key"),
        ({"mounts": [{"url": "s3://a", "ulr": ""}]}, ".spec.mounts[0].ulr: unknown"),
        (
            {"mounts": [{"url": "s3://a", "credentials": {"key": {"env": "K"}}}]},
            ".spec.mounts[0].credentials.key: unknown",
        ),
    ],
)
def test_the_schema_refuses_what_apply_refuses(schema: dict[str, Any], spec: dict[str, Any], fault: str) -> None:
    body = document("demo", "s3://bucket")
    body["spec"] |= spec
    assert list(faults(schema, body)) == [fault]


def test_the_openapi_has_every_route_with_its_dataset(schema: dict[str, Any]) -> None:
    api = json.loads(generate.openapi())
    assert {"get", "post"} <= set(api["paths"]["/v1/datasets"])
    assert set(api["components"]["schemas"]["DatasetSpec"]["properties"]) == set(
        schema["properties"]["spec"]["properties"]
    )


def test_the_page_of_metrics_names_exactly_what_is_scraped() -> None:
    worker = {family.name: family.type for family in WorkerMetrics().registry.collect()}
    row = {"id": "w0", "node": "n", "used": 1, "capacity": 2, "restarts": 0, "state": "ready"}
    text = controller_metrics.exposition([read_dataset(document("demo", "s3://bucket"))], [row]).decode()
    controller = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", generate.metrics_page(), re.MULTILINE)
    expected = {f"{name}_total" if kind == "counter" else name: kind for name, kind in worker.items()} | controller
    assert dict(listed) == expected
    for name, _, labels, means in controller_metrics.described():
        assert f"# HELP {name} {means}\n" in text
        found = re.search(rf"^{name}{{(.*)}} ", text, re.MULTILINE)
        assert found and tuple(sorted(re.findall(r"(\w+)=", found[1]))) == tuple(sorted(labels)), name
