"""A pydantic JSON schema as the structural schema that a CustomResourceDefinition must have. Pure.

Kubernetes takes a part of OpenAPI v3: no $ref, no anyOf of types, no const, no closed objects, a type everywhere, and
defaults only where the parent has one. What pydantic says in those words is said in the permitted ones here; what
lies between fields becomes a rule in CEL. `generate.py` writes the result down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Schema = dict[str, Any]

FORM = "x-form"
"""The key of `forms.Form` in pydantic's schema; becomes a part of the description."""
KEPT = (
    "description",
    FORM,
    "type",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "default",
    "required",
)
"""Keywords that mean the same in both; every other one is translated below or dropped."""
LIST_KEYS = {"mounts": "path", "conditions": "type"}
"""List -> the field that tells its items apart; every other list is replaced whole (atomic)."""
RULES = {
    "CredentialReference": ("has(self.env) != has(self.file)", "must have exactly one of env or file"),
    "DatasetSpec": (
        "!has(self.replicas) || self.owners <= self.replicas",
        "owners must not be more than replicas",
    ),
}
"""Model -> (CEL rule, message): what one field alone cannot show."""


def inlined(schema: Mapping[str, Any]) -> Schema:
    """The whole schema of a resource, as pydantic makes it -> one tree of `KEPT` keywords and forms, nothing closed."""
    return _node(dict(schema), schema.get("$defs", {}), "")


def structural(schema: Mapping[str, Any]) -> Schema:
    """The same -> what may stand in `openAPIV3Schema`."""
    root = _permitted(inlined(schema))
    properties = root["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": properties[name]["description"]}
    name = properties["metadata"]["properties"]["name"]
    properties["metadata"] = {"type": "object", "properties": {"name": name}}  # Kubernetes allows no more here
    properties["status"] = _without_defaults(properties["status"])
    root["required"] = ["spec"]
    return root


def _node(schema: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    """One node and all below it; `name` is the field that it stands in."""
    schema = _resolved(schema, definitions)
    node = {key: schema[key] for key in KEPT if schema.get(key) is not None}
    if "const" in schema:
        node["enum"] = [schema["const"]]
    if "pattern" in node:
        node["pattern"] = node["pattern"].replace(r"\z", "$")  # the same in Go's syntax, and known in more places
    if node["type"] == "integer":
        node["format"] = "int64"
    if node["type"] == "array":
        node |= {"items": _node(schema["items"], definitions, ""), **_list_type(name)}
    if node["type"] == "object":
        node |= _fields(schema, definitions)
    if rule := RULES.get(schema.get("title", "")):
        node["x-kubernetes-validations"] = [{"rule": rule[0], "message": rule[1]}]
    return node


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Without $ref, and without "or null": a field that may be left out need not say so. Siblings win."""
    schema = dict(schema)
    while True:
        if reference := schema.pop("$ref", None):
            schema = {**definitions[reference.rpartition("/")[2]], **schema}
        elif parts := schema.pop("anyOf", None):
            (kind,) = [part for part in parts if part.get("type") != "null"]
            schema = {**kind, **schema}
        else:
            return schema


def _list_type(name: str) -> Schema:
    if key := LIST_KEYS.get(name):
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {"x-kubernetes-list-type": "atomic"}


def _fields(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Fixed fields, fields of a fixed set of names (propertyNames is forbidden), or free names."""
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        if names := schema.get("propertyNames", {}).get("enum"):
            return {"properties": {name: _node(values, definitions, name) for name in names}}
        return {"additionalProperties": _node(values, definitions, "")}
    fields = {name: _node(part, definitions, name) for name, part in schema["properties"].items()}
    found: Schema = {"properties": fields}
    if not schema.get("required") and any("default" in part for part in fields.values()):
        found["default"] = {}  # else the defaults below it hold only where the user wrote the parent
    return found


def _permitted(node: Schema) -> Schema:
    """Forms are no keyword of Kubernetes: they become the end of the description, which `kubectl explain` shows."""
    found = _below(node, _permitted)
    if form := found.pop(FORM, ""):
        found["description"] = f"{found.get('description', '')} Write {form}.".strip()
    return found


def _without_defaults(node: Schema) -> Schema:
    """The status is written whole by the controller: the API server must not add to it."""
    found = _below(node, _without_defaults)
    found.pop("default", None)
    return found


def _below(node: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A copy of the node whose children are changed."""
    found = dict(node)
    if "properties" in found:
        found["properties"] = {name: change(part) for name, part in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = change(found[key])
    return found
