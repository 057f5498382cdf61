"""References to secrets become secrets here, in the process that needs them, and nowhere else.

A Dataset names where a credential is ({"env": VARIABLE} or {"file": PATH}); the value lives in memory, goes to
`sources.open_source`, and is never part of a message, a repr or a document.
"""

from __future__ import annotations

from collections.abc import Mapping

from cache_engine.errors import InvalidValue, MissingCredential

NAMES = frozenset(("accessKeyId", "secretAccessKey", "sessionToken", "bearerToken", "username", "password"))
"""What a source may be given."""
_LONGEST = 64 << 10
"""Bytes read of a credential file: tokens take a few KiB; a wrong path must not fill the memory."""


def check(references: Mapping[str, Mapping[str, str]]) -> None:
    """Raises InvalidValue where a reference is not of the allowed form. Resolves nothing."""
    for name, reference in references.items():
        if name not in NAMES:
            raise InvalidValue(f"credential {name!r} is not known; use one of {', '.join(sorted(NAMES))}")
        if not isinstance(reference, Mapping) or len(reference) != 1 or not set(reference) <= {"env", "file"}:
            raise InvalidValue(f"credential {name!r} must be a reference: {{env: VARIABLE}} or {{file: PATH}}")
        if not all(isinstance(place, str) and place and "\0" not in place for place in reference.values()):
            raise InvalidValue(f"credential {name!r} must name a variable or a file")


def resolve(references: Mapping[str, Mapping[str, str]], environ: Mapping[str, str]) -> dict[str, str]:
    """The values behind the references. Raises MissingCredential, which names the reference and never a value."""
    check(references)
    return {name: _resolve_one(name, reference, environ) for name, reference in references.items()}


def _resolve_one(name: str, reference: Mapping[str, str], environ: Mapping[str, str]) -> str:
    if "env" in reference:
        variable = reference["env"]
        value = environ.get(variable, "")
        if not value:
            raise MissingCredential(f"credential {name!r}: the environment variable {variable!r} is not set here")
        return _one_line(name, value)
    path = reference["file"]
    try:
        with open(path, "rb") as file:
            raw = file.read(_LONGEST + 1)
    except OSError as error:
        raise MissingCredential(f"credential {name!r}: the file {path!r} cannot be read: {error.strerror}") from error
    if not raw.strip() or len(raw) > _LONGEST:
        raise MissingCredential(f"credential {name!r}: the file {path!r} is empty or longer than {_LONGEST} bytes")
    try:
        return _one_line(name, raw.decode())
    except UnicodeDecodeError:
        pass  # the error's text would show bytes of the secret
    raise MissingCredential(f"credential {name!r}: the file {path!r} is not text in UTF-8")


def _one_line(name: str, value: str) -> str:
    """Editors and `echo` leave a newline at the end; one in the middle means it is not the secret itself."""
    value = value.strip()
    if not value.isprintable():
        raise MissingCredential(f"credential {name!r}: the value holds line breaks or control characters")
    return value
