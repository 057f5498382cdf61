"""uvicorn as a part of `forebay up` rather than its master: signals stay ours, and an event says that it listens.

Imported late, by `serve.py`: with FastAPI it is most of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from fastapi import FastAPI

CLOSE_WITHIN = 1
"""Seconds that open requests get at the end; a watch never ends by itself."""


class ApiServer(uvicorn.Server):
    """Serves `app` on a socket that already listens."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",  # uvloop has no sendfile and is 50 ms to import
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=CLOSE_WITHIN,
        )
        super().__init__(config)
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
