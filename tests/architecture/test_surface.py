"""Everything that somebody outside may lean on, frozen. To grow the surface is to edit a list here, on purpose."""

from __future__ import annotations

import importlib
from typing import Any, cast

import pytest

from cache_engine.server import WorkerServer
from dataset_controller.api import make_app
from dataset_controller.cli import PACKAGES, make_parser
from dataset_controller.generate import dataset_schema
from dataset_controller.reference_pages import field_rows, verbs_of
from dataset_controller.structural_schema import inlined
from tests.architecture import code

NAMES = {
    "cache_engine": """AccessDenied CacheEngineError ControllerUnavailable CorruptBlock InvalidValue MissingCredential
        NotFound ObjectChanged ReadOnlyDataset SourceThrottled SourceUnavailable UnsupportedSource WorkerUnavailable list_datasets
        open""",
    "prefetch": "FailedFile WarmConfig WarmReport warm",
    "model_loader": "",
    "scheduler_hooks": "",
    "training": "",
    "serving": "",
    "dataset_controller": "",
}
VERBS = {
    "up": "--workers --cache-size --state --port --node --detach -v/--verbose -o/--output",
    "down": "--state -o/--output",
    "apply": "-o/--output -f/--file --wait --timeout",
    "delete": "NAME -o/--output",
    "refresh": "NAME -o/--output",
    "get": "datasets|workers NAME -o/--output",
    "describe": "NAME -o/--output",
    "explain": "NAME -o/--output",
    "ls": "NAME[/PATH] -l/--long -R/--recursive -o/--output",
    "cat": "NAME/PATH",
    "cp": "NAME[/PATH] TARGET --concurrency -o/--output",
    "warm": "NAME PATH --concurrency -o/--output",
}
CONTROLLER = """
    DELETE /v1/datasets/{name}
    GET /docs
    GET /docs/oauth2-redirect
    GET /healthz
    GET /metrics
    GET /openapi.json
    GET /v1/datasets
    GET /v1/datasets/{name}
    GET /v1/datasets/{name}/access
    GET /v1/datasets/{name}/explain
    GET /v1/manifests/{digest}
    GET /v1/workers
    POST /v1/datasets
    POST /v1/datasets/{name}/refresh
    POST /v1/workers/{worker}/heartbeat
"""
WORKER = """
    GET /healthz
    GET /metrics
    GET /v1/d/{dataset}/{digest}/{index}
    GET /v1/datasets/{dataset}/files/{path}
    GET /v1/stats
    POST /v1/d/{dataset}/{digest}/batch
    POST /v1/d/{dataset}/{digest}/fill
    POST /v1/d/{dataset}/{digest}/{index}/bad
"""
FIELDS = """
    apiVersion kind
    metadata metadata.name metadata.labels metadata.annotations metadata.uid metadata.generation
    metadata.resourceVersion metadata.creationTimestamp
    spec spec.mounts spec.mounts[].url spec.mounts[].path spec.mounts[].options
    spec.mounts[].credentials spec.mounts[].credentials.{name} spec.mounts[].credentials.{name}.env
    spec.mounts[].credentials.{name}.file spec.mounts[].include spec.mounts[].exclude
    spec.replicas spec.owners spec.nearCopies spec.snapshot spec.snapshot.refresh spec.snapshot.interval
    status status.observedGeneration status.phase status.files status.bytes status.cachedBytes status.nearBytes
    status.cachedRatio status.snapshot status.snapshot.digest status.snapshot.files status.snapshot.bytes
    status.snapshot.takenAt status.snapshot.hidden status.snapshot.unshowable status.workers status.workers.ready
    status.workers.total status.conditions status.conditions[].type status.conditions[].status
    status.conditions[].reason status.conditions[].message status.conditions[].lastTransitionTime
"""


@pytest.mark.parametrize("package", code.PACKAGES)
def test_public_names(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(getattr(module, "__all__", ())) == sorted(NAMES[package].split())
    assert all(hasattr(module, name) for name in NAMES[package].split())


def test_verbs_and_their_options() -> None:
    found = {
        verb.name: " ".join(one.names.replace(", ", "/").split(" ")[0] for one in verb.arguments)
        for verb in verbs_of(make_parser(PACKAGES).verbs)
    }
    assert found == VERBS


def test_every_verb_that_prints_a_document_speaks_json() -> None:
    silent = [name for name, arguments in VERBS.items() if "-o/--output" not in arguments]
    assert silent == ["cat"], "cat writes the bytes themselves"


def test_routes_of_the_controller() -> None:
    nobody = cast(Any, None)
    found = {
        f"{method} {route.path}"  # type: ignore[attr-defined]
        for route in make_app(nobody, nobody, nobody).routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert sorted(found) == sorted(_lines(CONTROLLER))


def test_routes_of_a_worker() -> None:
    routes = WorkerServer(cast(Any, None)).application().router.routes()
    found = {f"{route.method} {route.resource.canonical}" for route in routes if route.resource}
    assert sorted(entry for entry in found if not entry.startswith("HEAD ")) == sorted(_lines(WORKER))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_fields_of_a_dataset() -> None:
    found = [row[0].strip("`").lstrip(".") for row in field_rows(inlined(dataset_schema()), "")]
    assert sorted(found) == sorted(FIELDS.split())
