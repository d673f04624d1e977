"""Turn whatever foreign code raised into a typed failure with a short log. Used inside workers."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

_REPORTED = ("COMPILE_ERROR", "RUNTIME_ERROR")
_LOG_BYTES = 6000
_FRAMES = 6

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
    """Return the last frames and the message, at most 6 kB: a log goes into records and prompts."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = "".join(traceback.format_list(frames))
    what = "".join(traceback.format_exception_only(error)).strip()
    if len(what) > _LOG_BYTES:
        what = what[: _LOG_BYTES // 2] + "\n…\n" + what[-_LOG_BYTES // 2 :]
    return f"{where[-_LOG_BYTES:]}{what}"
