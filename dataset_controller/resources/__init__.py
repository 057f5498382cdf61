"""The resources as pydantic models, their words, and what is wrong with a document as one sentence a field."""

from dataset_controller.resources.dataset import (
    API_VERSION,
    KIND,
    Condition,
    Dataset,
    DatasetSpec,
    DatasetStatus,
    Metadata,
    MountSpec,
    SnapshotRule,
    SnapshotStatus,
    WorkersStatus,
)
from dataset_controller.resources.problems import Problem, Refused, read_dataset

__all__ = [
    "API_VERSION",
    "KIND",
    "Condition",
    "Dataset",
    "DatasetSpec",
    "DatasetStatus",
    "Metadata",
    "MountSpec",
    "Problem",
    "Refused",
    "SnapshotRule",
    "SnapshotStatus",
    "WorkersStatus",
    "read_dataset",
]
