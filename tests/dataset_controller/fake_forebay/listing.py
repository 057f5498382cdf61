"""A listing of file:// mounts into a JSON "manifest". A file named OUTCOME in the directory scripts a failure."""

import hashlib
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from cache_engine.access import MountAccess
from cache_engine.errors import AccessDenied, SourceUnavailable
from cache_engine.snapshot import EmptySnapshot, ListingCutShort
from dataset_controller.snapshots import Difference, Listed

OUTCOME = ".outcome"
FAILURES = {
    "denied": AccessDenied("the source refuses to list"),
    "down": SourceUnavailable("the source does not answer"),
    "truncated": ListingCutShort("the listing ended after 3 files", 3),
}


def take_directory(mounts: tuple[MountAccess, ...], directory: Path, before: Path | None) -> Listed:
    files: dict[str, list[int]] = {}
    for mount in mounts:
        root = Path(urlsplit(mount.url).path)
        if (root / OUTCOME).exists():
            raise FAILURES[(root / OUTCOME).read_text()]
        for folder, _, names in os.walk(root):
            for name in names:
                found = os.stat(os.path.join(folder, name))
                files[os.path.join(mount.path, os.path.relpath(folder, root), name)] = [
                    found.st_size,
                    found.st_mtime_ns,
                ]
    if not files:
        raise EmptySnapshot("the listing is empty")
    text = json.dumps(files, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = directory / f"{digest}.manifest"
    path.write_text(text)
    old = json.loads(before.read_text()) if before and before.exists() else {}
    changed = sum(old[name] != row for name, row in files.items() if name in old)
    difference = Difference(len(files.keys() - old.keys()), changed, len(old.keys() - files.keys()))
    return Listed(digest, len(files), sum(size for size, _ in files.values()), path, difference)
