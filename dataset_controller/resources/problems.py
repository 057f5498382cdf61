"""A document that is not a Dataset: one sentence a field, with its path, what it is and the allowed form.

Secrets have a way of being typed where a reference belongs: a value below `credentials` or `options`, or one that
looks like a URL with a password, is never repeated.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from cache_engine.errors import InvalidValue
from dataset_controller.resources.dataset import Dataset, DatasetSpec
from dataset_controller.resources.forms import Form

_UNSPOKEN = frozenset({"credentials", "options"})
_SHOWN = 60
"""Characters of a wrong value that are repeated."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one field. `path` such as spec.mounts[0].url."""

    path: str
    says: str

    def __str__(self) -> str:
        return f"{self.path} {self.says}"


class Refused(InvalidValue):
    """A document that was not stored, with every problem found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def read_dataset(document: object) -> Dataset:
    """A parsed YAML or JSON document -> Dataset. Raises Refused with all problems, in the order of the fields."""
    if not isinstance(document, dict):
        raise Refused([Problem("document", f"is {_kind(document)}; write a mapping with kind: Dataset")])
    written = {name: value for name, value in document.items() if name != "status"}
    try:
        dataset = Dataset.model_validate_json(json.dumps(written))
    except ValidationError as error:
        raise Refused(_problems(error)) from error
    except (TypeError, ValueError) as error:
        raise Refused([Problem("document", f"holds a value that JSON cannot carry: {error}")]) from error
    if problems := list(_between_fields(dataset.spec)):
        raise Refused(problems)
    return dataset


def _between_fields(spec: DatasetSpec) -> Iterable[Problem]:
    """What one field alone cannot show."""
    seen: dict[str, int] = {}
    for number, mount in enumerate(spec.mounts):
        first = seen.setdefault(mount.path, number)
        if first != number:
            says = f"is {mount.path!r} like that of spec.mounts[{first}]; give each mount a path of its own"
            yield Problem(f"spec.mounts[{number}].path", says)
        for name, reference in mount.credentials.items():
            if len(reference.as_mapping()) != 1:
                path = f"spec.mounts[{number}].credentials.{name}"
                yield Problem(path, "must have exactly one of {env: VARIABLE} or {file: /path}")
    if spec.replicas is not None and spec.owners > spec.replicas:
        says = f"is {spec.owners}, more than spec.replicas; write a whole number from 1 to {spec.replicas}"
        yield Problem("spec.owners", says)


def _problems(error: ValidationError) -> list[Problem]:
    problems: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        location = [part for part in detail["loc"] if part != "[key]"]
        kind = "unknown_key" if "[key]" in detail["loc"] else detail["type"]
        problem = Problem(_path(location), _says(kind, location, detail["input"]))
        problems.setdefault(problem.path, problem)
    return list(problems.values())


def _says(kind: str, location: list[Any], value: object) -> str:
    model, field = _find(location)
    if kind == "extra_forbidden":
        return _unknown(str(location[-1]), model)
    form = _form(field.annotation, field.metadata) if field else ""
    write = f"; write {form}" if form else ""
    if kind in ("missing", "unknown_key"):
        return f"is {'missing' if kind == 'missing' else 'not known'}{write}"
    return f"{_quoted(location, value)} is not allowed{write}"


def _form(annotation: Any, metadata: Iterable[Any]) -> str:
    """What may be written, also where the field is "that or nothing": X | None keeps the form at X."""
    for item in metadata:
        if isinstance(item, Form):
            return item.text
    if get_origin(annotation) in (Union, types.UnionType):
        return next((text for part in get_args(annotation) if (text := _form(part, get_args(part)[1:]))), "")
    return ""


def _quoted(location: list[Any], value: object) -> str:
    if value is None:
        return "is empty, which"
    silent = _UNSPOKEN.intersection(location) or not isinstance(value, str | int | float) or "@" in str(value)
    if silent:
        return f"is {_kind(value)}, which"
    text = json.dumps(value, ensure_ascii=False)
    return f"is {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}, which"


def _unknown(name: str, model: type[BaseModel] | None) -> str:
    known = sorted(field.alias or key for key, field in model.model_fields.items()) if model else []
    begun = [one for one in known if name and one.lower().startswith(name.lower())]
    near = begun or difflib.get_close_matches(name, known, n=1)
    meant = f", did you mean {near[0]}?" if near else ";"
    return f"is not a field{meant} write one of {', '.join(known)}"


def _find(location: list[Any]) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The model that the last name of `location` belongs to, and the deepest field on the way that is known."""
    model: type[BaseModel] | None = Dataset
    owner, found = model, None
    for part in location:
        if model is None:
            continue
        owner = model
        field = next((item for key, item in model.model_fields.items() if part == (item.alias or key)), None)
        if field is not None:
            found, model = field, _model_in(field.annotation)
    return owner, found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside X, X | None, list[X] or dict[str, X]; None where there is none."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) in (list, dict, Union, types.UnionType):
        return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
    return None


def _path(location: Iterable[Any]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "document"


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")
