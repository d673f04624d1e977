"""Imports: of allowed modules, and of the Solution's own files."""

from __future__ import annotations

import ast
from abc import abstractmethod
from pathlib import PurePosixPath

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_bindings import Bindings
from kernel_skills.executor.lint_program import File, Scope
from kernel_skills.executor.lint_values import UNKNOWN, Path, Sibling


class Imports(Bindings):
    """Evaluates import statements."""

    @abstractmethod
    def load(self, file: File) -> None:
        """Read one file of the Solution, once."""

    def import_(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _importable(alias.name):
                    self.facts.add("import", scope.file, node, f"imports {alias.name!r}")
                name = alias.asname or alias.name.split(".")[0]
                scope.names[name] = frozenset({Path(alias.name if alias.asname else name)})
            return
        if node.level:
            self._import_sibling(node, scope)
            return
        module = node.module or ""
        if not _importable(module):
            self.facts.add("import", scope.file, node, f"imports {module!r}")
        for alias in node.names:
            name, path = alias.asname or alias.name, f"{module}.{alias.name}"
            scope.names[name] = frozenset({Path(path)})
            if alias.name == "*":
                self.facts.add("import", scope.file, node, f"imports every name of {module!r}")
            elif _importable(module):
                known = (
                    _importable(path)
                    or module.startswith("triton.language")
                    or self._in_kernels(path)
                )
                scope.names[name] = (
                    frozenset({Path(path)}) if known else self.path(path, scope, node)
                )

    @staticmethod
    def _in_kernels(path: str) -> bool:
        return path.startswith("triton.language") or names.kernel_path_allowed(path)

    def _import_sibling(self, node: ast.ImportFrom, scope: Scope) -> None:
        folder = PurePosixPath(scope.file.path).parent
        for _ in range(node.level - 1):
            folder = folder.parent
        inner = folder.joinpath(*(node.module or "").split("."))
        for alias in node.names:
            name = alias.asname or alias.name
            module, package = f"{inner}.py", f"{inner / alias.name}.py"
            if node.module and module in self.files:
                self.load(self.files[module])
                scope.names[name] = self.files[module].scope.find(alias.name) or UNKNOWN
            elif package in self.files:
                self.load(self.files[package])
                scope.names[name] = frozenset({Sibling(package)})
            else:
                self.facts.add("import", scope.file, node, f"imports {alias.name!r}, which is no file of the Solution")  # fmt: skip
                scope.names[name] = UNKNOWN


def _importable(module: str) -> bool:
    return module in names.ALLOWED_IMPORTS or (
        module.startswith("triton.experimental.gluon.") and names.kernel_path_allowed(module)
    )
