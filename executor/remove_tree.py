"""Remove what foreign code left on disk, however it tried to keep it."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there; what cannot be removed stays.

    Nothing may be at work in it any more.
    """
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        _flatten(folder)


def _flatten(folder: Path) -> None:
    """Remove a folder whose inner folders are closed to their owner, or deeper than recursion and paths can go.

    Each folder within is emptied upwards: what it holds moves to the top, so that no path is ever long.
    """
    waiting, emptied = [folder], [folder]
    while waiting:
        here = waiting.pop()
        with contextlib.suppress(OSError):
            here.chmod(0o700)
            for entry in list(here.iterdir()):
                with contextlib.suppress(OSError):
                    if entry.is_symlink() or not entry.is_dir():
                        entry.unlink()
                        continue
                    # a folder that is moved must be writable itself
                    entry.chmod(0o700)
                    above = entry.rename(folder / secrets.token_hex(8))
                    waiting.append(above)
                    emptied.append(above)
    for here in reversed(emptied):
        with contextlib.suppress(OSError):
            here.rmdir()
