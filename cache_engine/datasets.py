"""What one worker knows of the Datasets it serves: their access documents, manifests, sources and rings.

Loaded on the first request that names a Dataset and renewed when a heartbeat shows a newer epoch. When the
controller is away the last known document goes on being used: the data plane does not need it to be right.
Synchronous; `server.py` calls it in threads where it may have to load, and `known` from the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cache_engine.access import Access, Member, MountAccess
from cache_engine.block import ObjectId
from cache_engine.control import Control
from cache_engine.credentials import resolve
from cache_engine.errors import CacheEngineError, ControllerUnavailable, NotFound, UnsupportedSource, WorkerUnavailable
from cache_engine.fork_lock import ForkLock
from cache_engine.manifest import Manifest
from cache_engine.manifest_shelf import ManifestShelf
from cache_engine.ring import Ring
from cache_engine.source import Source
from cache_engine.sources import open_source

_log = logging.getLogger("forebay.worker")
KNOWN_FILES = 1 << 16
SILENT = 1.0
"""Seconds for which a controller that did not answer is not asked again for the same Dataset: one that hangs costs
10 s a question, and the threads that ask in turn are those that serve every other Dataset."""
OLD_SNAPSHOTS = 4
"""Earlier manifests kept open a Dataset: readers that have not refreshed yet still name them."""


def open_mounts(mounts: tuple[MountAccess, ...], environ: Mapping[str, str]) -> list[Source]:
    """One Source a mount, in order. Raises MissingCredential, InvalidValue, UnsupportedSource."""
    return [open_source(m.url, m.options, resolve(m.credentials, environ)) for m in mounts]


def open_manifest(access: Access, control: Control, directory: Path) -> Manifest:
    """The Dataset's manifest: the controller's own file where this host has it, else a copy in `directory`."""
    ref = access.snapshot
    if ref is None:
        raise NotFound(f"Dataset {access.dataset} has no snapshot yet; `forebay explain {access.dataset}` says why")
    if ref.path and Path(ref.path).is_file():
        manifest = Manifest.open(Path(ref.path))
        if manifest.digest == ref.digest:
            return manifest
    return ManifestShelf(directory).fetch(ref, control)


def holds(manifest: Manifest, obj: ObjectId) -> bool:
    """Whether the snapshot has exactly this object version."""
    for source, mount in zip(manifest.sources, manifest.mount_paths, strict=True):
        path = mount.encode() + b"/" + obj.key if mount else obj.key
        index = manifest.position(path) if source == obj.source else manifest.files
        if index < manifest.files and manifest.object_id(index) == obj:
            return True
    return False


class MountSources:
    """The sources of one Dataset's mounts, opened at the first fetch: what is cached needs no credential.

    Mutable: `_opened`, under `_lock`. `at` raises MissingCredential, InvalidValue, UnsupportedSource.
    Mounts are numbered by one manifest: a snapshot of other mounts has other sources under the same numbers.
    """

    def __init__(self, mounts: tuple[MountAccess, ...], environ: Mapping[str, str]) -> None:
        self._mounts = mounts
        self._environ = environ
        self._opened: list[Source] | None = None
        self._lock = ForkLock()

    def at(self, mount: int, name: str) -> Source:
        """The source of that number, which must be the one called `name`: an object never comes from another."""
        with self._lock:
            if self._opened is None:
                self._opened = open_mounts(self._mounts, self._environ)
            opened = self._opened
        if mount >= len(opened) or opened[mount].name != name:
            raise UnsupportedSource(
                f"{name} is no mount of this Dataset any more; refresh, and read its newest snapshot"
            )
        return opened[mount]


@dataclass(slots=True)
class ServedDataset:
    """One Dataset as a worker serves it. Replaced whole on a new epoch, but for `manifests`."""

    access: Access
    ring: Ring
    sources: MountSources
    """Of the current snapshot."""
    manifests: dict[str, Manifest] = field(default_factory=dict)
    earlier: dict[str, MountSources] = field(default_factory=dict)
    """Digest -> the sources of a snapshot whose mounts may have been others."""
    _files: dict[tuple[str, int], tuple[ObjectId, bool]] = field(default_factory=dict, repr=False)

    def file(self, digest: str, index: int, worker: str) -> tuple[ObjectId, bool]:
        """A file of a batch: its identity, and whether `worker` owns it. Remembered, and all forgotten at 65,536."""
        known = self._files.get((digest, index))
        if known is None:
            obj = self.manifest(digest).object_id(index)
            known = obj, worker in self.ring.owners(obj, 0, self.access.owners)
            if len(self._files) >= KNOWN_FILES:
                self._files.clear()
            self._files[digest, index] = known
        return known

    def source(self, digest: str, index: int) -> Source:
        """Where a file of that snapshot comes from, by the mounts that the snapshot was taken of."""
        manifest = self.manifest(digest)
        mount = manifest.mount(index)
        return self.earlier.get(digest, self.sources).at(mount, manifest.sources[mount])

    def member(self, worker: str) -> Member | None:
        return next((m for m in self.access.members if m.id == worker), None)

    @property
    def digest(self) -> str:
        """The current snapshot's digest; empty before the first."""
        return self.access.snapshot.digest if self.access.snapshot else ""

    def manifest(self, digest: str) -> Manifest:
        """Raises NotFound for a snapshot that this worker does not know."""
        try:
            return self.manifests[digest]
        except KeyError:
            raise NotFound(f"worker has no snapshot {digest[:12]} of Dataset {self.access.dataset}") from None


class Datasets:
    """All Datasets of one worker. Mutable: `_served`, replaced entry by entry under `_lock`; loads run outside it."""

    def __init__(self, control: Control, directory: Path, environ: Mapping[str, str]) -> None:
        self._control = control
        self._directory = directory
        self._environ = environ
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._served: dict[str, ServedDataset] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        """Name -> (when the controller gave no answer for it, in words); whoever has the turn writes it."""

    def __repr__(self) -> str:
        return f"<Datasets {', '.join(f'{n}@{d.access.epoch}' for n, d in self._served.items()) or 'none'}>"

    def known(self, name: str, digest: str = "") -> ServedDataset | None:
        """From memory only; None if it has to be loaded."""
        served = self._served.get(name)
        return served if served and (not digest or digest in served.manifests) else None

    def uids(self) -> set[str]:
        """Those of all Datasets served now."""
        return {served.access.uid for served in list(self._served.values())}

    def load(self, name: str, digest: str = "") -> ServedDataset:
        """The Dataset, asked of the controller if need be. Raises NotFound, ControllerUnavailable."""
        with self._turn(name):
            if served := self.known(name, digest):
                return served
            since, words = self._silent.pop(name, (0.0, ""))
            if words and time.monotonic() - since < SILENT:
                self._silent[name] = since, words
                raise ControllerUnavailable(words)
            try:
                return self._renew(name)
            except ControllerUnavailable as exc:
                self._silent[name] = time.monotonic(), str(exc)
                raise

    def _turn(self, name: str) -> threading.Lock:
        """One question to the controller a Dataset at a time."""
        with self._lock:
            return self._loading.setdefault(name, threading.Lock())

    def all(self) -> list[ServedDataset]:
        """Those that are loaded."""
        return list(self._served.values())

    def _renew(self, name: str) -> ServedDataset:
        """Ask the controller; the caller has the turn."""
        access = self._control.access(name)
        old = self._served.get(name)
        manifests = dict(list(old.manifests.items())[-OLD_SNAPSHOTS:]) if old and old.access.uid == access.uid else {}
        if access.snapshot and access.snapshot.digest not in manifests:
            manifests[access.snapshot.digest] = self._manifest(access)
        same = old is not None and old.access.mounts == access.mounts
        sources = old.sources if old and same else MountSources(access.mounts, self._environ)
        served = ServedDataset(access, Ring.of(access.members), sources, manifests)
        if old:
            before = {digest: old.earlier.get(digest, old.sources) for digest in manifests}
            served.earlier = {digest: kept for digest, kept in before.items() if digest != served.digest}
        with self._lock:
            self._served[name] = served
        return served

    def _manifest(self, access: Access) -> Manifest:
        try:
            return open_manifest(access, self._control, self._directory)
        except CacheEngineError:
            raise
        except OSError as exc:
            raise WorkerUnavailable(f"this worker cannot keep the manifest of {access.dataset}: {exc}") from exc

    def follow(self, epochs: Mapping[str, int]) -> list[ServedDataset]:
        """Renew what a heartbeat showed to be newer; forget, and return, what is no longer a Dataset."""
        gone = []
        for name, served in list(self._served.items()):
            if name not in epochs:
                with self._lock:
                    self._served.pop(name, None)
                gone.append(served)
            elif epochs[name] > served.access.epoch:
                self._follow_one(name, epochs[name])
        return gone

    def _follow_one(self, name: str, epoch: int) -> None:
        """What cannot be renewed goes on being served as it was known, and is tried again at the next heartbeat."""
        with self._turn(name):
            served = self._served.get(name)
            if served is None or served.access.epoch >= epoch:
                return  # a request came first
            try:
                self._renew(name)
            except CacheEngineError as exc:
                _log.warning("Dataset %s stays at epoch %d: %s", name, served.access.epoch, exc)
