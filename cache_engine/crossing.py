"""The one crossing from threads to the loop: wait on the loop for what threads bring.

asyncio.wrap_future costs a loop turn and 100 us a future; a batch waits for 64. Here the last one to arrive
wakes the loop, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any


async def wait_for_all(futures: Sequence[Future[Any]]) -> None:
    """Until every future is done, well or not; look at each for its result afterwards.

    Cancelling the waiter cancels none of the futures: a fetch belongs to its blocks.
    """
    pending = [future for future in futures if not future.done()]
    if not pending:
        return
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    left = len(pending)
    lock = threading.Lock()

    def one_done(_: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_wake, arrived)

    for future in pending:
        future.add_done_callback(one_done)
    await arrived


def _wake(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
