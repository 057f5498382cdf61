"""A bytes object that is filled where it lies, instead of zeroed as a bytearray first and copied as a whole last.

On fresh memory both extra passes cost as much as the network: 91 MB read from a warm cell took 0.24 s with them
and 0.09 s without. This is what CPython's C API offers for exactly this, PyBytes_FromStringAndSize(NULL, n): the
bytes may be written until somebody else sees them.
"""

from __future__ import annotations

import ctypes
from typing import cast

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(("PyBytes_FromStringAndSize", _api))
_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", _api))
_view = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", _api)
)
_WRITABLE = 0x200
"""PyBUF_WRITE"""


def fresh_bytes(size: int) -> tuple[bytes, memoryview]:
    """`size` bytes of undefined content, and the only writable view of them.

    Fill all of the view, let go of it, and only then hand the bytes on. The view does not keep them alive.
    """
    if not size:
        return b"", memoryview(bytearray())
    body = cast(bytes, _new(None, size))
    return body, cast(memoryview, _view(_address(body), size, _WRITABLE))
