"""What is checked at `apply` beyond the form: URLs, options and credential references, with nothing connected.

The checks of the data plane are an argument, so that this decides only where a refusal belongs: to the URL if it
fails without options too, else to the options. Values of credentials are resolved and dropped at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cache_engine.errors import CacheEngineError, InvalidValue, UnsupportedSource
from dataset_controller.resources import Dataset, MountSpec, Problem, Refused, read_dataset

LIST = "List"


@dataclass(frozen=True, slots=True)
class Checks:
    """The two checks of the data plane."""

    url: Callable[[str, Mapping[str, str]], object]
    """(url, options); raises InvalidValue or UnsupportedSource."""
    credentials: Callable[[Mapping[str, Mapping[str, str]]], object]
    """(references); raises MissingCredential."""


def real_checks(environ: Mapping[str, str]) -> Checks:
    """Those of cache_engine, imported at the first check."""

    def url(address: str, options: Mapping[str, str]) -> None:
        from cache_engine.sources import check_url

        check_url(address, options)

    def credentials(references: Mapping[str, Mapping[str, str]]) -> object:
        from cache_engine.credentials import resolve

        return resolve(references, environ)

    return Checks(url, credentials)


def admit(body: object, checks: Checks) -> list[Dataset]:
    """A Dataset, or a List of them, ready to be stored. Raises Refused with the problems of all of them."""
    datasets: list[Dataset] = []
    problems: list[Problem] = []
    for number, document in enumerate(items_of(body)):
        try:
            dataset = read_dataset(document)
            datasets.append(dataset)
            found: Sequence[Problem] = list(_problems(dataset, checks))
        except Refused as error:
            found = error.problems
        problems += [Problem(f"{_called(document, number)}: {problem.path}", problem.says) for problem in found]
    names = [dataset.metadata.name for dataset in datasets]
    problems += [_twice(name) for name in sorted(set(names)) if names.count(name) > 1]
    if problems:
        raise Refused(problems)
    return datasets


def items_of(body: object) -> list[Any]:
    """The documents of a request."""
    if isinstance(body, dict) and body.get("kind") == LIST:
        items = body.get("items")
        if not isinstance(items, list) or not items:
            raise Refused([Problem("items", "is missing or empty; write a list of at least one Dataset")])
        return items
    return [body]


def _called(document: object, number: int) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"Dataset {name}" if isinstance(name, str) and name else f"document {number + 1}"


def _twice(name: str) -> Problem:
    return Problem(f"Dataset {name}: metadata.name", "stands in more than one document; give each a name of its own")


def _problems(dataset: Dataset, checks: Checks) -> Iterator[Problem]:
    for number, mount in enumerate(dataset.spec.mounts):
        path = f"spec.mounts[{number}]"
        yield from _url_problem(path, mount, checks)
        try:
            checks.credentials(mount.access().credentials)
        except CacheEngineError as error:
            yield Problem(f"{path}.credentials", f"cannot be resolved: {error}")


def _url_problem(path: str, mount: MountSpec, checks: Checks) -> Iterator[Problem]:
    try:
        checks.url(mount.url, {})
    except (InvalidValue, UnsupportedSource) as error:
        without_options: CacheEngineError | None = error
    else:
        without_options = None
    try:
        checks.url(mount.url, mount.options)
    except (InvalidValue, UnsupportedSource) as error:
        field = "url" if without_options else "options"
        yield Problem(f"{path}.{field}", f"is refused: {error}")
