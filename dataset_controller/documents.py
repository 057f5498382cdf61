"""YAML text -> documents, as `forebay apply -f` reads them: strict where YAML is lax.

A key that stands twice is refused (PyYAML keeps the last one in silence), a date stays the text that was written,
and every refusal names the file, the line and the document. What a document means is decided by the controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from cache_engine.errors import InvalidValue

LIMIT = 1 << 20
"""Bytes of YAML in one file: ten thousand mounts are half of it."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. `line` is where its first key stands, from 1."""

    file: str
    line: int
    body: Any

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class _Loader(yaml.SafeLoader):
    """Plain values only, every key once, and no anchors that unfold into gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="an alias (*name), which is not allowed; write it out", problem_mark=mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key that is not a text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} a second time", problem_mark=key.start_mark)
            seen.add(key.value)
        return dict(super().construct_mapping(node, deep=deep))


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, file: str) -> list[Document]:
    """All documents of a file that are not empty. Raises InvalidValue with file and line."""
    if len(text) > LIMIT:
        raise InvalidValue(f"{file} has {len(text)} characters; at most {LIMIT} are read, split it")
    try:
        documents = list(_read(text, file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise InvalidValue(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise InvalidValue(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError) as error:
        raise InvalidValue(f"{file}: not valid YAML: {type(error).__name__} {error}") from error
    if not documents:
        raise InvalidValue(f"{file} holds no document; write one with kind: Dataset")
    return documents


def _read(text: str, file: str) -> list[Document]:
    loader = _Loader(text)
    found = []
    try:
        while loader.check_node():
            node = loader.get_node()
            body = loader.construct_document(node)
            if node is not None and body is not None:
                found.append(Document(file, node.start_mark.line + 1, body))
    finally:
        loader.dispose()
    return found
