"""`python -m dataset_controller.generate [--check]`: files of the repository that repeat what the code declares.

The models, the routes, the parsers and the tables of metrics are the truth; the CRD, the OpenAPI and the reference
pages are made from them here, and `make check` compares. Nothing at run time imports this.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from dataset_controller import reference_pages
from dataset_controller.reference_pages import MetricRow
from dataset_controller.resources import API_VERSION, KIND, Dataset
from dataset_controller.structural_schema import inlined, structural

ROOT = Path(__file__).resolve().parent.parent
GROUP, VERSION = API_VERSION.split("/")
COLUMNS = (
    ("Phase", "string", ".status.phase"),
    ("Files", "integer", ".status.files"),
    ("Size", "integer", ".status.bytes"),
    ("Cached", "integer", ".status.cachedRatio"),
    ("Workers", "integer", ".status.workers.ready"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
"""What `kubectl get datasets` prints; Size in bytes, Cached in percent."""


def dataset_schema() -> dict[str, Any]:
    """As pydantic makes it."""
    return Dataset.model_json_schema(by_alias=True)


def crd() -> str:
    """The CustomResourceDefinition of Datasets as YAML."""
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in COLUMNS]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": structural(dataset_schema())},
    }
    names = {
        "kind": KIND,
        "listKind": "DatasetList",
        "plural": "datasets",
        "singular": "dataset",
        "shortNames": ["ds"],
        "categories": ["forebay"],
    }
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"datasets.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }
    made = "# Written by `make generate` from dataset_controller/resources; a change made here is lost.\n"
    return made + yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=110)


class _Plain(yaml.SafeDumper):
    """Without anchors: one definition may stand in several places."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def crds_page() -> str:
    return reference_pages.fields_page(inlined(dataset_schema()), KIND)


def openapi() -> str:
    """The REST API's description; making the routes touches none of what they will call."""
    from dataset_controller.api import make_app

    app = make_app(cast(Any, None), cast(Any, None), cast(Any, None))
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def metrics_page() -> str:
    from cache_engine import metrics as worker
    from dataset_controller import metrics as controller

    rows = [
        MetricRow(f"forebay_worker_{name}_total", "counter", labels, text)
        for name, (text, labels) in worker.COUNTERS.items()
    ]
    rows += [MetricRow(f"forebay_worker_{name}", "gauge", (), text) for name, text in worker.GAUGES.items()]
    return reference_pages.metrics_page(rows, [MetricRow(*row) for row in controller.described()])


def cli_page() -> str:
    from dataset_controller.cli import PACKAGES, make_parser

    return reference_pages.cli_page(reference_pages.verbs_of(make_parser(PACKAGES).verbs))


FILES: dict[str, Callable[[], str]] = {
    f"deploy/crds/datasets.{GROUP}.yaml": crd,
    "docs/CRDS.md": crds_page,
    "docs/openapi.json": openapi,
    "docs/METRICS.md": metrics_page,
    "docs/CLI.md": cli_page,
}
"""Path below the repository's root -> what belongs there."""


def different(root: Path) -> list[str]:
    """The files below `root` that are missing or are not what the code says."""
    return [name for name, make in FILES.items() if _text(root / name) != make()]


def write(root: Path) -> list[str]:
    """Bring all of them up to date; returns those that were not."""
    stale = different(root)
    for name in stale:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name](), encoding="utf-8")
    return stale


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """1 where --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m dataset_controller.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args(argv).check
    stale = different(root) if check else write(root)
    for name in stale:
        print(f"differs: {name}" if check else f"wrote {name}", file=sys.stderr if check else sys.stdout)
    if check and stale:
        print("The code says otherwise: run `make generate` and commit what it writes.", file=sys.stderr)
        return 1
    print(f"{len(FILES)} generated files are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
