"""The controller's documents as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cache_engine.output import count, facts, table
from cache_engine.sizes import format_duration, format_size

Document = Mapping[str, Any]

_DATASET_COLUMNS = ("NAME", "PHASE", "FILES", "SIZE", "CACHED", "WORKERS", "AGE")
_WORKER_COLUMNS = ("ID", "STATE", "NODE", "USED", "CAPACITY", "RESTARTS", "PID", "URL")


def datasets_table(datasets: Sequence[Document], now: float) -> str:
    if not datasets:
        return "No Datasets yet; declare one with `forebay apply -f dataset.yaml`."
    return table(_DATASET_COLUMNS, [_dataset_row(dataset, now) for dataset in datasets])


def workers_table(workers: Sequence[Document]) -> str:
    rows = [
        (
            worker["id"],
            worker["state"],
            worker["node"],
            format_size(worker["used"]),
            format_size(worker["capacity"]),
            worker["restarts"],
            worker["pid"] or "-",
            worker["url"] or "-",
        )
        for worker in workers
    ]
    return table(_WORKER_COLUMNS, rows)


def description(dataset: Document, now: float) -> str:
    """One Dataset with its spec, status and conditions."""
    metadata, spec, status = dataset["metadata"], dataset["spec"], dataset["status"]
    snapshot = status.get("snapshot")
    rule = spec["snapshot"]
    refresh = f"every {rule['interval']}" if rule["refresh"] == "interval" else rule["refresh"]
    rows = [
        ("Name", metadata["name"]),
        ("Phase", status["phase"]),
        ("Generation", f"{metadata['generation']} (observed {status['observedGeneration']})"),
        ("Created", f"{metadata['creationTimestamp']} ({_age(metadata, now)} ago)"),
        ("Files", status["files"]),
        ("Size", f"{format_size(status['bytes'])} ({status['bytes']} bytes)"),
        ("Cached", f"{format_size(status['cachedBytes'])} ({status['cachedRatio']} %)"),
        ("Near copies", f"{format_size(status['nearBytes'])}, kept {spec['nearCopies']}"),
        (
            "Workers",
            f"{status['workers']['ready']} of {status['workers']['total']} ready, {count(spec['owners'], 'owner')}",
        ),
        ("Snapshot", f"{snapshot['digest'][:12]}, taken {snapshot['takenAt']}" if snapshot else "none"),
        ("Refresh", refresh),
    ]
    mounts = table(("URL", "PATH", "OPTIONS", "CREDENTIALS"), [_mount_row(mount) for mount in spec["mounts"]])
    parts = [facts(rows), "\nMounts:", _indented(mounts), "\nConditions:", _indented(conditions(status))]
    return "\n".join(parts)


def conditions(status: Document) -> str:
    rows = [
        (one["type"], one["status"], one["reason"], one["lastTransitionTime"], one["message"])
        for one in status["conditions"]
    ]
    return table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def explanation(document: Document) -> str:
    """Facts, what is wrong first and marked."""
    lines = [f"{document['name']} is {document['phase']}"]
    lines += [f"{'!' if line['wrong'] else ' '} {line['about']}: {line['says']}" for line in document["lines"]]
    return "\n".join(lines)


def refreshed(document: Document) -> str:
    changes = f"{document['added']} added, {document['changed']} changed, {document['gone']} gone"
    return f"{document['name']}: {changes}; now {count(document['files'], 'file')}, {format_size(document['bytes'])}"


def _dataset_row(dataset: Document, now: float) -> tuple[object, ...]:
    status = dataset["status"]
    workers = f"{status['workers']['ready']}/{status['workers']['total']}"
    cached = f"{status['cachedRatio']}%" if status.get("snapshot") else "-"
    files, size = (status["files"], format_size(status["bytes"])) if status.get("snapshot") else ("-", "-")
    return dataset["metadata"]["name"], status["phase"], files, size, cached, workers, _age(dataset["metadata"], now)


def _mount_row(mount: Document) -> tuple[str, str, str, str]:
    options = ", ".join(sorted(mount["options"])) or "-"
    references = [
        f"{name} from {kind} {where}" for name, ref in mount["credentials"].items() for kind, where in ref.items()
    ]
    return mount["url"], mount["path"] or "/", options, ", ".join(references) or "-"


def _age(metadata: Document, now: float) -> str:
    created = datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return format_duration(max(1.0, now - created.timestamp())).replace(".0s", "s")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
