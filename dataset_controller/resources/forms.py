"""The scalar values of a resource, each with the form that a person may write: said in the schema and in errors.

Quantities and durations become numbers here, once, and go out again in one canonical spelling, so that `60s` and
`1m` are the same spec. Paths use the names that the mount shows (`cache_engine.names`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema

from cache_engine.sizes import parse_duration


@dataclass(frozen=True, slots=True)
class Form:
    """What a person may write in a field, as the end of the sentence "write ..."; `x-form` in the JSON schema."""

    text: str

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "x-form": self.text}


def _seconds(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError("a number without a unit")
    seconds = parse_duration(value)  # type: ignore[arg-type]
    if seconds < 1 or seconds != int(seconds):
        raise ValueError("not a whole number of seconds, 1s at least")
    return int(seconds)


def duration_text(seconds: int) -> str:
    """Whole seconds -> the shortest exact spelling: 300 -> '5m', 5400 -> '1h30m'."""
    parts = []
    for letter, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"


def _mount_path(value: str) -> str:
    if value and any(part in ("", ".", "..") for part in value.split("/")):
        raise ValueError("not a relative path")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError("a control character in a path")
    return value


def _visible(value: str) -> str:
    if value.strip() != value or any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError("a control character in a URL, or a blank around it")
    return value


Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\z", max_length=63),
    Form("1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends"),
]
Url = Annotated[
    str,
    Field(min_length=1, max_length=4096),
    AfterValidator(_visible),
    Form("a URL like s3://bucket/prefix, oss://bucket/prefix, https://host/path or file:///directory"),
]
MountPath = Annotated[
    str,
    Field(max_length=1024),
    AfterValidator(_mount_path),
    Form("a relative path like images/train without a leading or trailing slash and without . or .., or nothing"),
]
Glob = Annotated[str, Field(min_length=1, max_length=1024)]
Globs = Annotated[list[Glob], Field(max_length=1000), Form("a list of globs like ['*.jpg', 'train/**']")]
Options = Annotated[dict[str, str], Form("names with text values, numbers in quotes: {region: eu-1, timeout: '30'}")]
Labels = Annotated[dict[str, str], Form("names with text values")]
Variable = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\z", max_length=256), Form("the name of an environment variable")
]
SecretFile = Annotated[
    str, Field(pattern=r"^/[^\x00]*\z", max_length=4096), Form("the absolute path of a file that holds the value")
]
CredentialName = Literal["accessKeyId", "secretAccessKey", "sessionToken", "bearerToken", "username", "password"]
Count = Annotated[int, Field(ge=1, le=1024), Form("a whole number from 1 to 1024")]
Duration = Annotated[
    int,
    BeforeValidator(_seconds),
    PlainSerializer(duration_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}),
    Form("a duration of whole seconds like 30s, 5m or 1h30m"),
]
