"""Write a whole file or none of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernel_skills.executor.errors import UsageError


def write_text(path: Path, text: str) -> None:
    """Put text into a file that a person named, whole or not at all.

    Raises:
        UsageError: the folder is missing or may not be written to, or the disk is full.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def replace_file(path: Path, content: bytes) -> None:
    """Put bytes into a file by way of a new file beside it, so that a kill leaves the old one or the new one.

    Raises:
        OSError: the file is as it was.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        # mkstemp makes the file private; what is written here is to be read as any other file of the folder
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
