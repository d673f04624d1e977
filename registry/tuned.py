"""Tuning results by variant digest, shape, architecture and toolchain, as readable JSON in the data home."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from kernel_skills.executor.errors import InvalidPackage, KernelSkillsError
from kernel_skills.executor.models import Record, Scalar
from kernel_skills.executor.trace import now
from kernel_skills.registry.atomic_file import replace_file
from kernel_skills.registry.home import data_home
from kernel_skills.registry.shape import Shape

_OF_TOOLCHAIN = ("torch", "triton")


class Tuned(Record):
    """The fastest configuration that a search found for one shape on one chip under one toolchain."""

    shape: Shape
    arch: str
    toolchain: Mapping[str, str]
    """torch and triton, exact versions: another compiler may want other tiles."""
    config: Mapping[str, Scalar]
    """Tuning parameter of the entry -> value."""
    latency_ms: float | None = None
    """Median; None where nothing was measured."""
    tried: int = 0
    """Configurations that the search judged."""
    timestamp: datetime = Field(default_factory=now)

    @property
    def key(self) -> tuple[str, str, str, str]:
        torch, triton = (self.toolchain.get(name, "") for name in _OF_TOOLCHAIN)
        return (self.shape.key, self.arch, torch, triton)


class TunedFile(Record):
    """One file of the store: what is tuned of one variant."""

    definition: str
    variant_digest: str
    results: tuple[Tuned, ...] = ()


class TunedStore:
    """A folder with one JSON file per definition and variant digest; default: `tuned/` in the data home."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder if folder is not None else data_home() / "tuned"

    def get(
        self,
        variant_digest: str,
        definition: str,
        shape: Shape,
        arch: str,
        toolchain: Mapping[str, str],
    ) -> Tuned | None:
        """Return the result for exactly this shape, chip and toolchain, or None.

        Raises:
            InvalidPackage: the file of the variant is damaged.
        """
        wanted = Tuned(shape=shape, arch=arch, toolchain=_exact(toolchain), config={}).key
        results = self._load(definition, variant_digest).results
        return next((result for result in results if result.key == wanted), None)

    def put(self, variant_digest: str, definition: str, result: Tuned) -> None:
        """Keep a result in place of the one for the same shape, chip and toolchain. Safe with several writers.

        Raises:
            InvalidPackage: the file of the variant is damaged.
            KernelSkillsError: the file cannot be written; the old one is as it was.
        """
        result = result.model_copy(update={"toolchain": _exact(result.toolchain)})
        file = self._file(definition, variant_digest)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with _locked(file.with_suffix(".lock")):
                old = self._load(definition, variant_digest)
                others = (other for other in old.results if other.key != result.key)
                new = old.model_copy(update={"results": (*others, result)})
                replace_file(file, new.model_dump_json(indent=2).encode() + b"\n")
        except OSError as error:
            raise KernelSkillsError(f"{file}: tuning result not kept: {error.strerror}") from error

    def results(self, variant_digest: str, definition: str) -> tuple[Tuned, ...]:
        """Return everything kept for a variant."""
        return self._load(definition, variant_digest).results

    def _file(self, definition: str, variant_digest: str) -> Path:
        # 16 hex digits keep names short; the whole digest is in the file and is compared
        return self._folder / definition / f"{variant_digest[:16]}.json"

    def _load(self, definition: str, variant_digest: str) -> TunedFile:
        file = self._file(definition, variant_digest)
        empty = TunedFile(definition=definition, variant_digest=variant_digest)
        try:
            stored = TunedFile.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return empty
        except OSError as error:
            raise InvalidPackage(f"{file}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"]
            raise InvalidPackage(
                f"{file}: damaged tuning results: {reason}; delete it and tune again"
            ) from None
        return stored if stored.variant_digest == variant_digest else empty


def _exact(toolchain: Mapping[str, str]) -> dict[str, str]:
    return {name: toolchain.get(name, "") for name in _OF_TOOLCHAIN}


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    # a lock file of its own: the JSON file is replaced, and a lock on it would go with it
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
