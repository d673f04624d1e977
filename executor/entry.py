"""Turn a Solution's sources into its entry function. Runs foreign code: call it in a worker only."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.models import SourceFile


class SourceTree:
    """A package's files written to a folder of the worker, imported as one private package.

    Files of one folder import each other relatively (`from .common import x`). The files stay on disk while the
    worker lives: Triton reads a kernel's source from its file.
    """

    _count = 0

    def __init__(self, sources: Sequence[SourceFile], folder: Path) -> None:
        SourceTree._count += 1
        self._root = folder / f"source{SourceTree._count}"
        self._package = f"_kernel_skills_source{SourceTree._count}"
        self._root.mkdir(parents=True)
        for source in sources:
            path = (self._root / source.path).resolve()
            if not path.is_relative_to(self._root.resolve()):
                raise InvalidPackage(f"source path {source.path!r} leaves the package")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source.content, encoding="utf-8")
        self._register_packages()

    def function(self, entry_point: str) -> Callable[..., Any]:
        """Import `path.py::name` and return the function.

        Raises:
            InvalidPackage: no such file or function. Whatever the import itself raises passes through.
        """
        path, name = entry_point.split("::")
        module = self.module(path)
        entry = getattr(module, name, None)
        if not callable(entry):
            raise InvalidPackage(f"{path} defines no function {name!r}")
        return entry  # type: ignore[no-any-return]

    def module(self, path: str) -> ModuleType:
        """Import one file of the package by its path."""
        file = self._root / path
        if not file.is_file():
            raise InvalidPackage(f"no file {path!r} among the sources")
        name = ".".join([self._package, *Path(path).with_suffix("").parts])
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        linecache.checkcache(str(file))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _register_packages(self) -> None:
        """Make every folder a package, so that relative imports resolve without `__init__` files."""
        folders = [self._root, *(p for p in sorted(self._root.rglob("*")) if p.is_dir())]
        for folder in folders:
            name = ".".join([self._package, *folder.relative_to(self._root).parts])
            package = ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package
