"""Traces on disk: append-only JSON lines that survive two writers, a kill and a full disk."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from kernel_skills.executor.errors import InvalidPackage, KernelSkillsError
from kernel_skills.executor.models import Workload
from kernel_skills.executor.run_journal import RunJournal
from kernel_skills.executor.trace import Passed, Trace
from kernel_skills.registry.digest import EVIDENCE_FOLDER, variant_digest
from kernel_skills.registry.home import data_home
from kernel_skills.registry.models import Problem, Skill, Variant

_FILE_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class MalformedEvidence(UserWarning):
    """A line of evidence that does not parse; it is passed over. The text begins with `FILE:LINE:`."""


class EvidenceStore:
    """A folder of evidence: one `DEFINITION.jsonl` per definition, one Trace per line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, trace: Trace) -> None:
        """Add a line: after this returns it is on disk; if it raises, the file is as it was.

        Raises:
            InvalidPackage: the Trace's definition is no name.
            KernelSkillsError: the line could not be written (disk full, no permission).
        """
        if not _FILE_NAME.fullmatch(trace.definition):
            raise InvalidPackage(
                f"{trace.definition!r} names no definition; use lower-case words and hyphens"
            )
        file = self.file(trace.definition)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _append_line(file, trace.model_dump_json().encode() + b"\n")
        except OSError as error:
            raise KernelSkillsError(
                f"{file}: evidence not written: {error.strerror}; mend that and run again"
            ) from error

    def file(self, definition: str) -> Path:
        """Return where the Traces of a definition are; it need not be there."""
        return self._folder / f"{definition}.jsonl"

    def traces(self) -> Iterator[Trace]:
        """Yield every Trace, file by file in the order written; a bad line costs a `MalformedEvidence` warning."""
        for item in self._lines():
            if isinstance(item, Trace):
                yield item
            else:
                warnings.warn(f"{item}; the line is passed over", MalformedEvidence, stacklevel=2)

    def problems(self) -> Iterator[Problem]:
        """Yield what `traces` warns of."""
        yield from (item for item in self._lines() if isinstance(item, Problem))

    def _lines(self) -> Iterator[Trace | Problem]:
        for file in sorted(self._folder.glob("*.jsonl")):
            try:
                content = _read_whole(file)
            except OSError as error:
                yield _problem(file, None, f"cannot be read: {error.strerror}")
                continue
            for number, line in enumerate(content.split(b"\n"), start=1):
                if line.strip():
                    yield _parse(file, number, line)


def own_evidence(skill: Skill) -> EvidenceStore:
    """Return the evidence inside the skill's own folder: what `--record` adds to, to be committed."""
    return EvidenceStore(skill.path / EVIDENCE_FOLDER)


def home_evidence(skill_name: str) -> EvidenceStore:
    """Return the evidence of a skill in the data home: what every run adds to."""
    return EvidenceStore(data_home() / EVIDENCE_FOLDER / skill_name)


def run_journal() -> RunJournal:
    """Return where runs say what is to be recorded if they are killed."""
    return RunJournal(data_home() / "runs")


def evidence_of(skill: Skill) -> Iterator[Trace]:
    """Yield the skill's own evidence, then what only the data home has. Stale Traces are among them."""
    seen: set[str] = set()
    for store in (own_evidence(skill), home_evidence(skill.name)):
        for trace in store.traces():
            text = trace.model_dump_json()
            if text not in seen:
                seen.add(text)
                yield trace


def current_evidence(skill: Skill) -> Iterator[Trace]:
    """Yield the Traces about variants as they are now."""
    digests = current_digests(skill)
    yield from (trace for trace in evidence_of(skill) if _digest(trace) in digests)


def stale_evidence(skill: Skill) -> Iterator[Trace]:
    """Yield the Traces about variants that have changed since, are gone, or were never of a skill."""
    digests = current_digests(skill)
    yield from (trace for trace in evidence_of(skill) if _digest(trace) not in digests)


def newest_match(
    skill: Skill, variant: Variant, workload: Workload, arch: str, *, measured: bool = True
) -> Trace | None:
    """Return the newest Trace of this variant, as it is now, on this workload and architecture.

    `measured` asks for a verdict PASSED with a performance; without it any outcome counts.
    """
    digest = variant_digest(skill, variant)
    matches = [
        (trace.evaluation.timestamp, trace)
        for trace in evidence_of(skill)
        if trace.evaluation is not None
        and _digest(trace) == digest
        and trace.workload.uuid == workload.uuid
        and trace.evaluation.environment.arch == arch
        and (not measured or is_measured(trace))
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def is_measured(trace: Trace) -> bool:
    return isinstance(trace.evaluation, Passed) and trace.evaluation.performance is not None


def _digest(trace: Trace) -> str:
    return trace.skill.variant_digest if trace.skill else ""


def current_digests(skill: Skill) -> set[str]:
    """Return the digests of the variants as they are now; a Trace of another is stale."""
    return {variant_digest(skill, variant) for variant in skill.manifest.variant}


# --- the file ---------------------------------------------------------------------------------


def _append_line(file: Path, line: bytes) -> None:
    is_new = not file.exists()
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        # a writer killed inside its write leaves half a line: start a fresh one, so that only that half is lost
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        _write_or_restore(descriptor, size, b"\n" + line if torn else line)
    finally:
        os.close(descriptor)
    if is_new:
        _sync_folder(file.parent)


def _write_or_restore(descriptor: int, size: int, data: bytes) -> None:
    """Append `data` in one write and make it last; on any failure cut the file back to `size` bytes."""
    try:
        written = os.write(descriptor, data)
        if written != len(data):
            # a full disk, a quota or a file size limit takes the first part of a write
            raise OSError(
                errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({written} of {len(data)} bytes fitted)"
            )
        os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_whole(file: Path) -> bytes:
    with file.open("rb") as stream:
        # shared with readers; waits for a writer, whose line must not be seen half
        fcntl.flock(stream, fcntl.LOCK_SH)
        return stream.read()


def _parse(file: Path, number: int, line: bytes) -> Trace | Problem:
    try:
        return Trace.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return _problem(file, number, f"no Trace: {place + ': ' if place else ''}{first['msg']}")


def _problem(file: Path, line: int | None, message: str) -> Problem:
    return Problem(path=str(file), line=line, rule="evidence", message=message)
