"""Turn whatever foreign code raised into a typed failure with a short log. Used inside workers."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from typing import Any

from kernel_skills.executor.errors import KernelSkillsError

_REPORTED = ("COMPILE_ERROR", "RUNTIME_ERROR")
_LOG_BYTES = 6000
_FRAMES = 6
_PLACE = re.compile(r'  File "([^/"][^"]*)", line (\d+)')
_COPY = re.compile(r"(?:/[^/\s\"']+)+/source\d+/")
"""The folder that `SourceTree` writes a package's files to; it is gone when a person reads the log."""

# matched by name along the class's bases: importing every Triton error here would pin its layout
_COMPILE_ERRORS = {
    "CompilationError", "CompileTimeAssertionFailure", "OutOfResources", "PTXASError", "UnsupportedLanguageConstruct",
    "CompileFailure", "SyntaxError",
}  # fmt: skip
_DEVICE_LOST = (
    "illegal memory access", "misaligned address", "illegal instruction", "unspecified launch failure",
    "device-side assert", "launch timed out", "hardware stack error",
)  # fmt: skip


def describe_failure(error: BaseException) -> dict[str, Any]:
    """Return `{"failed": status, "log": text, "device_lost": bool}` for an exception."""
    names = {cls.__name__ for cls in type(error).__mro__}
    status = "COMPILE_ERROR" if names & _COMPILE_ERRORS else "RUNTIME_ERROR"
    log = short_log(error)
    lost = any(part in log for part in _DEVICE_LOST)
    return {"failed": status, "log": log, "device_lost": lost}


def reported_status(answer: Mapping[str, Any]) -> str:
    """Return the status of an answer with `failed`, as far as a process that runs foreign code may name one."""
    return str(answer["failed"]) if answer["failed"] in _REPORTED else "CHEATING"


def short_log(error: BaseException) -> str:
    """Return the last frames and the message, at most 6 kB: a log goes into records and prompts.

    Frames outside the package's own are left out, and its files are named as the package names them.
    """
    if isinstance(error, KernelSkillsError):
        # says what and where in words
        return in_package(str(error))
    frames = list(traceback.extract_tb(error.__traceback__))
    ours = [position for position, frame in enumerate(frames) if _COPY.search(frame.filename)]
    if ours:
        frames = frames[ours[0] : ours[-1] + 1]
    where = "".join(traceback.format_list(frames[-_FRAMES:]))
    # torch appends the C++ stack of its own errors
    what = (
        "".join(traceback.format_exception_only(error)).split("\nException raised from ")[0].strip()
    )
    if len(what) > _LOG_BYTES:
        what = what[: _LOG_BYTES // 2] + "\n…\n" + what[-_LOG_BYTES // 2 :]
    return in_package(f"{where[-_LOG_BYTES:]}{what}")


def in_package(log: str) -> str:
    """Return a log with the package's files named as the package names them."""
    return _COPY.sub("", log)


def headline(log: str) -> str:
    """Return a short log as one line: the last place in the package, and what was raised there."""
    lines = [line for line in log.splitlines() if line.strip()]
    last_frame = max((at for at, line in enumerate(lines) if line.startswith(" ")), default=-1)
    what = lines[last_frame + 1] if last_frame + 1 < len(lines) else log.strip()
    places = _PLACE.findall(log)
    return f"{places[-1][0]}:{places[-1][1]}: {what}" if places else what
