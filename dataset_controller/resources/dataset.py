"""Dataset v1alpha1 of data.forebay.io: what a user declares, and what the controller says of it.

Field descriptions are the documentation (OpenAPI, CRD); `forms.py` holds the values. Numbers are integers: bytes,
files, percent. Fields that the controller owns (uid, generation, status...) are accepted in a document and ignored,
so that what `forebay get -o yaml` prints can be applied again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cache_engine.access import MountAccess, NearCopies
from dataset_controller.resources.forms import (
    Count,
    CredentialName,
    Duration,
    Form,
    Globs,
    Labels,
    MountPath,
    Name,
    Options,
    SecretFile,
    Url,
    Variable,
)

API_VERSION = "data.forebay.io/v1alpha1"
KIND = "Dataset"

Phase = Literal["Pending", "Snapshotting", "Ready", "Degraded", "Failed"]
Refresh = Literal["never", "onChange", "interval"]


class _Part(BaseModel):
    """Strict and closed: no value is bent into shape, no unknown field is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class CredentialReference(_Part):
    """Where a secret value lies, on the machine that uses it; exactly one of the two."""

    env: Variable | None = Field(None, description="The environment variable that holds the value.")
    file: SecretFile | None = Field(None, description="The file that holds the value.")

    def as_mapping(self) -> dict[str, str]:
        return {name: value for name, value in (("env", self.env), ("file", self.file)) if value is not None}


class MountSpec(_Part):
    """One source URL at one path inside the Dataset."""

    url: Url = Field(description="Where the bytes come from.")
    path: MountPath = Field("", description="Where they stand inside the Dataset; empty for its root.")
    options: Options = Field(default_factory=dict, description="Options of the source, such as region or endpoint.")
    credentials: Annotated[
        dict[CredentialName, CredentialReference],
        Form(
            "references of accessKeyId, secretAccessKey, sessionToken, bearerToken, username or password, "
            "each like {env: VARIABLE} or {file: /path}"
        ),
    ] = Field(default_factory=dict, description="Credential references, never values.")
    include: Globs = Field(default_factory=list, description="Only keys that match one of these; empty for all.")
    exclude: Globs = Field(default_factory=list, description="No keys that match one of these.")

    def access(self) -> MountAccess:
        """The same mount as the data plane wants it."""
        return MountAccess(
            url=self.url,
            path=self.path,
            options=dict(self.options),
            credentials={name: ref.as_mapping() for name, ref in self.credentials.items()},
            include=tuple(self.include),
            exclude=tuple(self.exclude),
        )


class SnapshotRule(_Part):
    """When the Dataset is frozen anew."""

    refresh: Annotated[Refresh, Form("never, onChange or interval")] = Field(
        "onChange",
        description="never: only by `forebay refresh`; onChange: also when a worker found another version at the "
        "source than the snapshot names; interval: also every so often.",
    )
    interval: Duration = Field(
        300,
        validate_default=False,
        description="How often, with refresh: interval.",
        json_schema_extra={"default": "5m"},
    )


class DatasetSpec(_Part):
    """What a user wants."""

    mounts: Annotated[list[MountSpec], Form("a list of at least one mount like [{url: s3://bucket/prefix}]")] = Field(
        min_length=1, max_length=64, description="The sources, each at one path."
    )
    replicas: Count | None = Field(None, description="How many workers own its data; default: all.")
    owners: Count = Field(1, description="How many workers own each object.")
    near_copies: Annotated[NearCopies, Form("never, onRead or complete")] = Field(
        "complete",
        description="What the worker on a reading node keeps of what it does not own: nothing; the blocks that were "
        "read; or every file whole of which a block was read.",
    )
    snapshot: Annotated[SnapshotRule, Form("a rule like {refresh: interval, interval: 5m}")] = Field(
        default_factory=lambda: SnapshotRule.model_validate({}), description="When it is frozen anew."
    )

    def mount_access(self) -> tuple[MountAccess, ...]:
        return tuple(mount.access() for mount in self.mounts)


class Condition(_Part):
    """One thing that is so or not, why, in numbers, and since when."""

    type: str = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    reason: str = Field(description="Why, in one word for programs.")
    message: str = Field(description="Why, in a sentence for people.")
    last_transition_time: str = Field(description="Since when, in UTC.")


class SnapshotStatus(_Part):
    """The snapshot that is served now."""

    digest: str = Field(description="SHA-256 of the manifest, which names it.")
    files: int = Field(description="Files in it.")
    bytes: int = Field(description="Their bytes.")
    taken_at: str = Field(description="When it was taken, in UTC.")
    hidden: int = Field(0, description="Files behind a directory of the same name; read them by their exact key.")
    unshowable: int = Field(0, description="Files whose names are too long to be shown; read them by their exact key.")


class WorkersStatus(_Part):
    """How many of the workers that own its data answer."""

    ready: int = Field(description="Workers that answer.")
    total: int = Field(description="Workers that own a part of its data.")


class DatasetStatus(_Part):
    """What is so now. `cachedRatio` is a whole percent, rounded down: 100 means every byte, `owners` times."""

    observed_generation: int = Field(0, description="The generation of the spec that this status is about.")
    phase: Phase = Field("Pending", description="The one word for all of it.")
    files: int = Field(0, description="Files of the snapshot that is served.")
    bytes: int = Field(0, description="Their bytes.")
    cached_bytes: int = Field(0, description="Bytes that the owners hold and have verified; each owner's count.")
    near_bytes: int = Field(0, description="Bytes of near copies, which never count as cached.")
    cached_ratio: int = Field(0, description="cachedBytes of bytes times owners, a whole percent, rounded down.")
    snapshot: SnapshotStatus | None = Field(None, description="The snapshot that is served now.")
    workers: WorkersStatus = Field(WorkersStatus(ready=0, total=0), description="The workers that own its data.")
    conditions: list[Condition] = Field(default_factory=list, description="What is so or not, and why.")


class Metadata(_Part):
    """The name, free labels, and what the controller keeps beside them."""

    name: Name = Field(description="What readers call it: `forebay://NAME/path`.")
    labels: Labels = Field(default_factory=dict, description="Yours; nothing here reads them.")
    annotations: Labels = Field(default_factory=dict, description="Yours; nothing here reads them.")
    uid: str = Field("", description="This Dataset, and no later one of the same name.")
    generation: int = Field(0, description="Counts the changes of the spec.")
    resource_version: str = Field("", description="Changes with every change; where a watch goes on.")
    creation_timestamp: str = Field("", description="When it was created, in UTC.")


class Dataset(_Part):
    """A set of files from one or more sources, kept in front of those who read them."""

    api_version: Annotated[Literal["data.forebay.io/v1alpha1"], Form(API_VERSION)]
    kind: Annotated[Literal["Dataset"], Form(KIND)]
    metadata: Annotated[Metadata, Form("at least {name: NAME}")]
    spec: Annotated[DatasetSpec, Form("at least {mounts: [{url: URL}]}")]
    status: DatasetStatus = Field(default_factory=lambda: DatasetStatus.model_validate({}))

    def to_json(self) -> dict[str, object]:
        """The document as it is stored, served and printed."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
