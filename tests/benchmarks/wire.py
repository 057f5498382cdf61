"""A plain client for tests of the object store: one request, the raw target as given."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


def connect(url: str) -> http.client.HTTPConnection:
    place = urlsplit(url)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=10)


def ask_on(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes = b""
) -> Reply:
    connection.putrequest(method, target, skip_host="host" in map(str.lower, headers), skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body or method == "PUT":
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)


def ask(url: str, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes = b"") -> Reply:
    connection = connect(url)
    try:
        return ask_on(connection, method, target, headers, body)
    finally:
        connection.close()
