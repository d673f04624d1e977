"""The package folders that a person means by paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_skills.executor.errors import NotFound
from kernel_skills.registry.manifest import MANIFEST_NAME


def package_folders(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the packages at the paths: a folder with a manifest, its manifest, or a folder of such folders.

    A folder that holds neither is returned as it is, so that its check says what is missing.

    Raises:
        NotFound: nothing is at a path.
    """
    folders: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path}: no such file or folder")
        folder = path.parent if path.name == MANIFEST_NAME else path
        inside = sorted(manifest.parent for manifest in folder.glob(f"*/{MANIFEST_NAME}"))
        folders += [folder] if (folder / MANIFEST_NAME).exists() or not inside else inside
    return tuple(dict.fromkeys(folders))
