"""The options of a mount, as text from a Dataset's YAML, checked and turned into values."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from cache_engine.errors import InvalidValue
from cache_engine.http1 import Timeouts
from cache_engine.sizes import parse_duration

TRANSPORT = frozenset(("connectTimeout", "firstByteTimeout", "progressTimeout", "caFile"))
"""Options of every source that speaks HTTP."""


def only(options: Mapping[str, str], allowed: frozenset[str], scheme: str) -> None:
    """Raises InvalidValue for an option that `scheme` does not know, naming those that it does."""
    for name, value in options.items():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise InvalidValue(f"option {name!r} is not known for {scheme}://; known: {known}")
        if not isinstance(value, str):
            raise InvalidValue(f"option {name!r} must be text; put it in quotes")


def flag(options: Mapping[str, str], name: str) -> bool:
    """'true' or 'false'; False where it is not set."""
    return choice(options, name, ("false", "true")) == "true"


def choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`; the first where it is not set."""
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise InvalidValue(f"option {name!r} is {value!r}; it must be one of {', '.join(allowed)}")
    return value


def timeouts(options: Mapping[str, str]) -> Timeouts:
    usual = Timeouts()
    return Timeouts(
        connect=seconds(options, "connectTimeout", usual.connect),
        first_byte=seconds(options, "firstByteTimeout", usual.first_byte),
        progress=seconds(options, "progressTimeout", usual.progress),
    )


def seconds(options: Mapping[str, str], name: str, usual: float) -> float:
    """A duration in seconds, above 0 (0 would mean: wait for ever)."""
    if name not in options:
        return usual
    value = parse_duration(options[name])
    if value <= 0:
        raise InvalidValue(f"option {name!r} must be longer than 0")
    return value


def tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Trust in the authorities of `caFile`; None means the system's."""
    if "caFile" not in options:
        return None
    try:
        return ssl.create_default_context(cafile=options["caFile"])
    except (OSError, ValueError) as error:
        raise InvalidValue(f"option 'caFile': {options['caFile']!r} holds no certificates: {error}") from error
