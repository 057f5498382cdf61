"""Our own object store on loopback: http, S3 and OSS, slow and faulty on request; the tests' and benchmarks' origin.

    with ObjectStore("s3", {"bucket/key": b"bytes"}, credentials=("id", "secret"), rate=60e6) as store:
        store.rule("status", "GET */key", times=3, code=503, body_code="SlowDown")
        ... talk to store.url ...; store.log, store.sent, store.count("GET")

One thread a connection, raw sockets and sendfile: it shares its cores with what is measured. As a process of its
own: `python -m benchmarks.objectstore`, or `StoreProcess` from Python. Purpose of the files: `request`, `answer`
(values), `body`, `objects` (what is stored), `page`, `buckets`, `dialects/` (who says what), `faults` (the script),
`sending`, `connection`, `store` (sockets and threads), `control`, `process` (from outside).
"""

from benchmarks.objectstore.process import RemoteStore, StoreProcess
from benchmarks.objectstore.request import Request
from benchmarks.objectstore.store import ObjectStore

__all__ = ["ObjectStore", "RemoteStore", "Request", "StoreProcess"]
