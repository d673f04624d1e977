"""Checks of a package's Python files and templates, by their syntax trees: nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from kernel_skills.executor.lint import ALLOWED_IMPORTS
from kernel_skills.executor.models import Definition
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.models import Manifest, Variant
from kernel_skills.registry.toml_lines import Place

KERNELS_FOLDER = "kernels"
TEMPLATES_FOLDER = "templates"

# Gluon is split over many modules
_GLUON = "triton.experimental.gluon."
_GENERATOR_PARAMETERS = ["axes", "dtypes", "seed", "device"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """The syntax trees of a package's Python files; one that does not parse is a finding, once."""

    def __init__(self, folder: Path, paths: Iterable[str], findings: Findings) -> None:
        self.paths = frozenset(paths)
        self._findings = findings
        self._trees = {
            path: self._parse(folder, path) for path in sorted(self.paths) if path.endswith(".py")
        }

    def tree(self, path: str) -> ast.Module | None:
        return self._trees.get(path)

    def function(self, entry: str, place: Place) -> FunctionNode | None:
        """Return the top-level function of `path.py::name`; what is missing is a finding at `place`."""
        path, name = entry.split("::")
        if path not in self.paths:
            self._findings.at(
                place, "entry", f"no file {path!r} in the package", "add it or mend the path"
            )
            return None
        tree = self.tree(path)
        if tree is None:
            return None
        for node in tree.body:
            if isinstance(node, FunctionNode) and node.name == name:
                return node
        functions = [node.name for node in tree.body if isinstance(node, FunctionNode)]
        mend = f"it defines {', '.join(functions)}" if functions else "define it at the top level"
        self._findings.at(place, "entry", f"{path} defines no function {name!r}", mend)
        return None

    def _parse(self, folder: Path, path: str) -> ast.Module | None:
        try:
            return ast.parse((folder / path).read_bytes())
        except SyntaxError as error:
            self._findings.add(path, error.lineno, "python", f"does not parse: {error.msg}")
        except (ValueError, RecursionError, MemoryError, OSError) as error:
            self._findings.add(path, None, "python", f"does not parse: {error}")
        return None


def check_sources(manifest: Manifest, sources: Sources, findings: Findings) -> None:
    """Check that everything that skill.toml names is defined, with the parameters that it must have."""
    for index, definition in enumerate(manifest.definition):
        place: Place = ("definition", index)
        _check_reference(definition, sources, place, findings)
        for number, baseline in enumerate(definition.baselines):
            sources.function(baseline.entry, (*place, "baselines", number, "entry"))
    for index, workload in enumerate(manifest.workload):
        if workload.generator is not None:
            _check_generator(
                workload.generator, sources, ("workload", index, "generator"), findings
            )
    for index, variant in enumerate(manifest.variant):
        definition = manifest.definition_named(variant.definition)
        _check_variant(variant, definition, sources, ("variant", index), findings)
    kernels = {
        path
        for path in sources.paths
        if path.startswith(f"{KERNELS_FOLDER}/") and path.endswith(".py")
    }
    for path in sorted(kernels | {variant.entry.split("::")[0] for variant in manifest.variant}):
        _check_imports(path, sources, findings)
    if manifest.kind == "application" and "demo.py" not in sources.paths:
        findings.add(
            "demo.py", None, "application", "no such file", "an application skill runs its demo.py"
        )


# --- signatures -------------------------------------------------------------------------------


def _check_reference(
    definition: Definition, sources: Sources, place: Place, findings: Findings
) -> None:
    place = (*place, "reference")
    function = sources.function(definition.reference, place)
    if function is None:
        return
    path = definition.reference.split("::")[0]
    names = [argument.arg for argument in (*_positional(function), *function.args.kwonlyargs)]
    if set(names) != set(definition.inputs) or function.args.vararg or function.args.kwarg:
        message = (
            f"{function.name}({', '.join(names)}) does not take the inputs of {definition.name}"
        )
        findings.add(
            path, function.lineno, "signature", message, f"name them {', '.join(definition.inputs)}"
        )


def _check_generator(entry: str, sources: Sources, place: Place, findings: Findings) -> None:
    function = sources.function(entry, place)
    if function is None:
        return
    names = [argument.arg for argument in (*_positional(function), *function.args.kwonlyargs)]
    if names != _GENERATOR_PARAMETERS:
        mend = f"make it {function.name}({', '.join(_GENERATOR_PARAMETERS)})"
        findings.add(
            entry.split("::")[0], function.lineno, "signature", "is no input generator", mend
        )


def _check_variant(
    variant: Variant, definition: Definition, sources: Sources, place: Place, findings: Findings
) -> None:
    for path in variant.files:
        if path not in sources.paths:
            findings.at(
                (*place, "files"),
                "entry",
                f"no file {path!r} in the package",
                "add it or mend the path",
            )
    function = sources.function(variant.entry, (*place, "entry"))
    if function is not None:
        path = variant.entry.split("::")[0]
        for message, mend in _signature_faults(function, variant, definition):
            findings.add(path, function.lineno, "signature", f"{function.name}: {message}", mend)
    for missing in sorted(
        _imported_files(variant, sources) - {variant.entry.split("::")[0], *variant.files}
    ):
        message = (
            f"variant {variant.id!r} of {definition.name} imports {missing}, which it does not list"
        )
        findings.at((*place, "files"), "files", message, f'add "{missing}" to `files`')


def _signature_faults(
    function: FunctionNode, variant: Variant, definition: Definition
) -> Iterator[tuple[str, str]]:
    arguments = function.args
    tensors = list(definition.tensor_inputs)
    positional = [argument.arg for argument in _positional(function)]
    if isinstance(function, ast.AsyncFunctionDef):
        yield "is async", "make it a plain function"
    if arguments.vararg or arguments.kwarg:
        yield "takes *args or **kwargs", "name every parameter"
    if positional != tensors:
        yield (
            f"takes ({', '.join(positional)}) by position",
            f"take the tensors ({', '.join(tensors)}), in this order",
        )
    defaults = {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    for name in definition.scalar_inputs:
        if name not in defaults and name not in positional:
            yield f"does not take the scalar input {name!r}", "add it after `*`"
    for name in variant.parameters:
        if name not in defaults:
            yield f"does not take the tuning parameter {name!r}", f"add `{name}=None` after `*`"
        elif not (isinstance(default := defaults[name], ast.Constant) and default.value is None):
            yield (
                f"tuning parameter {name!r} does not default to None",
                "None is the kernel's own choice",
            )
    for name in defaults.keys() - definition.scalar_inputs.keys() - variant.parameters.keys():
        if defaults[name] is None:
            yield (
                f"needs {name!r}, which is neither a scalar input nor a parameter of the variant",
                "declare it",
            )


def _positional(function: FunctionNode) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args]


# --- imports ----------------------------------------------------------------------------------


def _check_imports(path: str, sources: Sources, findings: Findings) -> None:
    tree = sources.tree(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_allowed(alias.name):
                    _refuse(path, node.lineno, alias.name, findings)
        elif isinstance(node, ast.ImportFrom) and node.level:
            for module in _relative_files(path, node):
                if not sources.paths.intersection(module):
                    message = f"imports {module[0]!r}, which is not in the package"
                    findings.add(
                        path, node.lineno, "import", message, "import siblings of kernels/ only"
                    )
        elif isinstance(node, ast.ImportFrom):
            module_name = node.module or ""
            for alias in node.names:
                if not _is_allowed(module_name) and not _is_allowed(f"{module_name}.{alias.name}"):
                    _refuse(path, node.lineno, module_name, findings)
                    break


def _is_allowed(module: str) -> bool:
    return module in ALLOWED_IMPORTS or module.startswith(_GLUON)


def _refuse(path: str, line: int, module: str, findings: Findings) -> None:
    mend = f"a kernel may import its siblings and {', '.join(ALLOWED_IMPORTS[1:])}"
    findings.add(path, line, "import", f"imports {module!r}", mend)


def _relative_files(path: str, node: ast.ImportFrom) -> list[tuple[str, ...]]:
    """Return, for each file that a relative import reads, the paths it may have in the package."""
    folder = PurePosixPath(path).parent.parts
    if node.level - 1 > len(folder):
        return [("." * node.level + (node.module or ""),)]
    base = [
        *folder[: len(folder) - (node.level - 1)],
        *(node.module.split(".") if node.module else ()),
    ]
    if node.module:
        return [_module_paths(base)]
    return [_module_paths([*base, alias.name]) for alias in node.names]


def _module_paths(parts: Sequence[str]) -> tuple[str, ...]:
    return ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"]))


def _imported_files(variant: Variant, sources: Sources) -> set[str]:
    """Return every file of the package that a variant reads through relative imports."""
    waiting, seen = [variant.entry.split("::")[0], *variant.files], set[str]()
    while waiting:
        path = waiting.pop()
        tree = sources.tree(path)
        if path in seen or tree is None:
            continue
        seen.add(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                waiting.extend(
                    p
                    for module in _relative_files(path, node)
                    for p in module
                    if p in sources.paths
                )
    return seen
