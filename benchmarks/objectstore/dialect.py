"""The contract of a dialect: who may ask, and what the answer is. The shelf of implementations is `dialects/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.objectstore.answer import Answer
from benchmarks.objectstore.objects import Shelf
from benchmarks.objectstore.request import Request


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a signature is checked with. For http: user and password, or an empty user and a bearer token."""

    id: str
    secret: str
    token: str = ""
    """A session token that every signed request has to carry."""


@dataclass(frozen=True, slots=True)
class DialectConfig:
    """What a dialect is made of."""

    shelf: Shelf
    credentials: Credentials | None = None
    """None: anybody may do anything."""
    page: int = 1000
    """The most keys in one page of a listing."""
    domain: str = "localhost"
    """Host names BUCKET.domain name a bucket (virtual-host style); all others are path style."""
    checksums: bool = False
    """Whether S3 sends x-amz-checksum-crc32c with a whole object where the request wishes it."""


class Dialect(Protocol):
    """Thread-safe; keeps nothing but its config."""

    def refuse(self, request: Request) -> Answer | None:
        """The refusal of a request that is not (rightly) signed; None where it may pass."""
        ...

    def answer(self, request: Request) -> Answer:
        """What a store without faults says, whoever asks."""
        ...

    def error(self, request: Request, status: int, code: str, message: str = "") -> Answer:
        """An error as this dialect writes it."""
        ...

    def key(self, request: Request) -> bytes:
        """The key on the shelf that the request is about."""
        ...

    def listing(self, request: Request) -> bytes | None:
        """The prefix (with its bucket) that a listing asks for; None for any other request."""
        ...
