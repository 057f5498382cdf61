"""The controller's own verbs, with `up` starting the stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cache_engine.errors import InvalidValue, MissingCredential
from dataset_controller import commands
from dataset_controller.clusters.local.process import WorkerPlace
from dataset_controller.serve import Outside

if TYPE_CHECKING:
    from dataset_controller.admission import Checks
    from dataset_controller.snapshots import Take


def worker(place: WorkerPlace) -> list[str]:
    head = [sys.executable, "-m", "tests.dataset_controller.fake_forebay.worker", "--id", place.id]
    tail = ["--control", place.control, "--directory", str(place.directory)]
    return [*head, *tail, "--quota", str(place.quota), "--node", place.node]


def checks(environ: Mapping[str, str]) -> Checks:
    def url(address: str, options: Mapping[str, str]) -> None:
        if not address.startswith("file:///"):
            raise InvalidValue(f"{address!r} is no URL of a source; write file:///directory")
        if unknown := set(options) - {"region"}:
            raise InvalidValue(f"{sorted(unknown)[0]!r} is no option of file://; it has region")

    def credentials(references: Mapping[str, Mapping[str, str]]) -> None:
        for name, reference in references.items():
            if "env" in reference and reference["env"] not in environ:
                raise MissingCredential(f"{name} refers to the variable {reference['env']}, which is not set")

    from dataset_controller.admission import Checks

    return Checks(url, credentials)


def take(environ: Mapping[str, str]) -> Take:
    from tests.dataset_controller.fake_forebay.listing import take_directory

    return take_directory


OUTSIDE = Outside(
    command=worker,
    take=take,
    checks=checks,
    program=(sys.executable, "-m", "tests.dataset_controller.fake_forebay"),
)


def register(verbs: Any) -> None:
    commands.register(verbs, OUTSIDE)
