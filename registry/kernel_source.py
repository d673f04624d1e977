"""Import an installed skill's own files in place, as trusted code: tracebacks and Triton point at the real file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_skills.executor.errors import InvalidPackage


class InstalledSource:
    """A skill's folder as a private package. `key` differs for every content, so an edited skill is imported anew.

    Files of one folder import each other relatively, as under the judge.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder.resolve()
        self._package = f"_kernel_skills_installed_{key}"
        if self._package not in sys.modules:
            package = ModuleType(self._package)
            # folders below need no `__init__`: Python takes them as namespace packages
            package.__path__ = [str(self._folder)]
            sys.modules[self._package] = package

    def function(self, entry_point: str) -> Callable[..., Any]:
        """Import `path.py::name` and return the function.

        Raises:
            InvalidPackage: no such file or function. Whatever the import itself raises passes through.
        """
        path, name = entry_point.split("::")
        if not (self._folder / path).resolve().is_relative_to(self._folder):
            raise InvalidPackage(f"source path {path!r} leaves the package")
        if not (self._folder / path).is_file():
            raise InvalidPackage(f"no file {path!r} in {self._folder}")
        # a file written in the same second as the last listing of its folder is else not seen
        importlib.invalidate_caches()
        module = importlib.import_module(
            ".".join([self._package, *Path(path).with_suffix("").parts])
        )
        entry = getattr(module, name, None)
        if not callable(entry):
            raise InvalidPackage(f"{self._folder / path} defines no function {name!r}")
        return entry  # type: ignore[no-any-return]
