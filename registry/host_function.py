"""Read an existing Triton file by its syntax, never by running it: the host function, its inputs, its outputs.

What the text does not say is guessed by the words that kernel files use (`rows, cols = x.shape`,
`torch.empty_like(x)`), and the guess is written into a manifest that its author reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage, UsageError
from kernel_skills.executor.models import Scalar
from kernel_skills.registry.shape_guess import ShapeGuess

_TENSOR_WORDS = frozenset(
    {"shape", "stride", "size", "numel", "dim", "ndim", "dtype", "device", "is_contiguous", "contiguous", "data_ptr"}
)  # fmt: skip
_SCALAR_DTYPES = {"int": "int64", "float": "float32", "bool": "bool", "str": "string"}
_INDEX_NAME = re.compile(r"(^|_)(idx|ids?|index|indices|offsets?|lens?|lengths?|labels?)($|_)")
_REFERENCE_NAME = re.compile(r"(^|_)(ref|reference|torch|naive|native|eager|pytorch)($|_)")
_TUNING_NAME = re.compile(r"[A-Z][A-Z0-9_]*$")


@dataclass(frozen=True)
class TensorGuess:
    name: str
    shape: tuple[str, ...]
    """Axis names."""
    dtype: str


@dataclass(frozen=True)
class ScalarGuess:
    name: str
    dtype: str
    default: Scalar | None
    """None: a caller has to give it."""


@dataclass(frozen=True)
class HostFunction:
    """What an existing file says of one operator."""

    name: str
    source: str
    """The parts of the file that the function reaches, as written."""
    inputs: tuple[TensorGuess, ...]
    scalars: tuple[ScalarGuess, ...]
    outputs: tuple[TensorGuess, ...]
    order: tuple[str, ...]
    """Inputs as the function takes them."""
    positional: tuple[str, ...]
    """All parameters that may be given by position."""
    tuning: tuple[str, ...]
    """Parameters in capitals whose default is None."""
    reference: str
    """Source of a plain PyTorch function of the same file that takes the same tensors; empty where there is none."""
    reference_imports: tuple[str, ...] = field(default=())

    @property
    def fits(self) -> bool:
        """It is an entry as it stands: tensors by position, all else by keyword."""
        return self.positional == tuple(tensor.name for tensor in self.inputs)

    @property
    def axes(self) -> tuple[str, ...]:
        """Axis names, in the order in which inputs and outputs use them."""
        tensors = (*self.inputs, *self.outputs)
        return tuple(dict.fromkeys(axis for tensor in tensors for axis in tensor.shape))


def read_host_function(file: Path) -> HostFunction:
    """Return the first function of `file` that launches a `@triton.jit` kernel, public names before private ones.

    Raises:
        UsageError: no such file.
        InvalidPackage: it does not parse, launches nothing, or returns nothing.
    """
    text, tree = _parsed(file)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    host = _find_host(functions, file)
    inputs, scalars, tuning = _parameters(host, file)
    shapes = ShapeGuess(host, inputs)
    outputs = tuple(
        TensorGuess(name, shape, _dtype_of(dtype, name)) for name, shape, dtype in shapes.outputs()
    )
    if not outputs:
        raise InvalidPackage(
            f"{file}:{host.lineno}: {host.name} returns no tensor; let it allocate its output and return it"
        )
    reference, imports = _reference(
        tree, functions, host, (inputs, tuple(scalar.name for scalar in scalars)), text
    )
    arguments = host.args
    return HostFunction(
        name=host.name,
        source=_reached(tree, host.name, text),
        inputs=tuple(
            TensorGuess(name, shapes.of(name), "int64" if _INDEX_NAME.search(name) else "T")
            for name in inputs
        ),
        scalars=scalars,
        outputs=outputs,
        order=tuple(
            a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if a.arg in inputs or any(a.arg == scalar.name for scalar in scalars)
        ),
        positional=tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args)),
        tuning=tuning,
        reference=reference,
        reference_imports=imports,
    )  # fmt: skip


def _parsed(file: Path) -> tuple[str, ast.Module]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}") from error
    try:
        return text, ast.parse(text)
    except SyntaxError as error:
        raise InvalidPackage(f"{file}:{error.lineno}: does not parse: {error.msg}") from error


# --- which function ---------------------------------------------------------------------------


def _find_host(functions: Mapping[str, ast.FunctionDef], file: Path) -> ast.FunctionDef:
    kernels = {name for name, node in functions.items() if _is_jit(node)}
    if not kernels:
        raise InvalidPackage(
            f"{file}: no @triton.jit kernel; name a file that holds one and its host function"
        )
    direct = {
        name for name, node in functions.items() if name not in kernels and _launches(node, kernels)
    }
    if not direct:
        raise InvalidPackage(
            f"{file}: no function launches {', '.join(sorted(kernels))}[grid](...)"
        )
    # a public function over a private launcher is the one that people call
    callers = {
        name for name, node in functions.items()
        if name not in kernels | direct and not name.startswith("_") and _names(node) & direct
    }  # fmt: skip
    public = [name for name in functions if name in direct and not name.startswith("_")]
    wrapped = [
        name for name in functions if name in callers and _has_tensor_result(functions[name])
    ]
    chosen = public or wrapped or [name for name in functions if name in direct]
    return functions[chosen[0]]


def _is_jit(node: ast.FunctionDef) -> bool:
    words = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    return any(word.split(".")[-1] == "jit" for word in words)


def _launches(node: ast.FunctionDef, kernels: set[str]) -> bool:
    return any(
        isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id in kernels
        for part in ast.walk(node)
    )  # fmt: skip


def _has_tensor_result(node: ast.FunctionDef) -> bool:
    return any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(node))


# --- its parameters ---------------------------------------------------------------------------


def _parameters(
    host: ast.FunctionDef, file: Path
) -> tuple[tuple[str, ...], tuple[ScalarGuess, ...], tuple[str, ...]]:
    """Return tensors, scalars and tuning parameters of the host function."""
    if host.args.vararg or host.args.kwarg:
        raise InvalidPackage(
            f"{file}:{host.lineno}: {host.name} takes *args or **kwargs; name its parameters"
        )
    tensors: list[str] = []
    scalars: list[ScalarGuess] = []
    tuning: list[str] = []
    for argument, default in _with_defaults(host.args):
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        # a tensor that may be left out has no place in a contract: its kernel's default stands
        optional_tensor = "Tensor" in annotation and default is not None
        if optional_tensor:
            continue
        if "Tensor" in annotation or (
            not annotation and default is None and _used_as_tensor(host, argument.arg)
        ):
            tensors.append(argument.arg)
        elif _TUNING_NAME.match(argument.arg) and default is not None:
            if isinstance(default, ast.Constant) and default.value is None:
                tuning.append(argument.arg)
        elif annotation.startswith(("torch.", "Callable")):
            if default is None:
                word = f"{file}:{host.lineno}: {host.name} needs {argument.arg!r}, a {annotation}"
                raise InvalidPackage(f"{word}, which no contract can give; give it a default")
        else:
            scalars.append(_scalar(argument.arg, annotation, default))
    if not tensors:
        raise InvalidPackage(
            f"{file}:{host.lineno}: no parameter of {host.name} is seen to be a tensor; annotate it"
        )
    return tuple(tensors), tuple(scalars), tuple(tuning)


def _with_defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    yield from zip(positional, [*[None] * missing, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)


def _used_as_tensor(host: ast.FunctionDef, name: str) -> bool:
    return any(
        isinstance(part, ast.Attribute) and part.attr in _TENSOR_WORDS
        and isinstance(part.value, ast.Name) and part.value.id == name
        for part in ast.walk(host)
    )  # fmt: skip


def _scalar(name: str, annotation: str, default: ast.expr | None) -> ScalarGuess:
    value = default.value if isinstance(default, ast.Constant) else None
    if isinstance(default, ast.UnaryOp) and isinstance(default.operand, ast.Constant):
        number = default.operand.value
        value = -number if isinstance(number, int | float) else None
    known = value if isinstance(value, bool | int | float | str) else None
    word = annotation.split("|")[0].strip() or (
        type(known).__name__ if known is not None else "float"
    )
    return ScalarGuess(name, _SCALAR_DTYPES.get(word, "float32"), known)


def _dtype_of(dtype: str, name: str) -> str:
    return dtype or ("int64" if _INDEX_NAME.search(name) else "T")


# --- what it reaches --------------------------------------------------------------------------


def _names(node: ast.AST) -> set[str]:
    """Return the names that a statement takes from around it: not its own parameters and variables."""
    used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    if not isinstance(node, ast.FunctionDef):
        return used
    own = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    own |= {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    return used - own


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement of the module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return set()


def _reached(tree: ast.Module, name: str, text: str) -> str:
    """Return the statements of a module that a function reaches, as written, without the benchmark below them."""
    body = [node for node in tree.body if _bound(node)]
    wanted, size = {name}, 0
    while len(wanted) != size:
        size = len(wanted)
        for node in body:
            if _bound(node) & wanted and not isinstance(node, ast.Import | ast.ImportFrom):
                wanted |= _names(node)
    kept = [node for node in body if _bound(node) & wanted]
    docstring = [
        n for n in tree.body[:1] if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    ]
    future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    chosen = list(dict.fromkeys((*docstring, *future, *kept)))
    return _joined(chosen, text.splitlines())


def _joined(nodes: Sequence[ast.stmt], lines: Sequence[str]) -> str:
    """Return statements with their decorators and the comments right above them, spaced as ruff has it."""
    parts: list[str] = []
    for node in nodes:
        decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
        start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        while start > 0 and lines[start - 1].startswith("#"):
            start -= 1
        big = isinstance(node, ast.FunctionDef | ast.ClassDef)
        previous = nodes[nodes.index(node) - 1] if node is not nodes[0] else None
        if previous is not None:
            imports = isinstance(node, ast.Import | ast.ImportFrom) and isinstance(
                previous, type(node)
            )
            after_big = isinstance(previous, ast.FunctionDef | ast.ClassDef)
            parts.append("\n\n" if big or after_big else "" if imports else "\n")
        parts.append("\n".join(lines[start : node.end_lineno]) + "\n")
    return "".join(parts)


def _reference(
    tree: ast.Module,
    functions: Mapping[str, ast.FunctionDef],
    host: ast.FunctionDef,
    inputs: tuple[Sequence[str], Sequence[str]],
    text: str,
) -> tuple[str, tuple[str, ...]]:
    """Return a function of the file that computes the same in plain PyTorch, and the imports that it needs.

    It must take the same tensors in the same order, and every scalar by its name.
    """
    tensors, scalars = list(inputs[0]), set(inputs[1])
    for name, node in functions.items():
        takes = [argument.arg for argument, _ in _with_defaults(node.args)]
        fits = takes[: len(tensors)] == tensors and set(takes[len(tensors) :]) == scalars
        if not _REFERENCE_NAME.search(name) or node is host or _is_jit(node) or not fits:
            continue
        others = _names(node) & (set(functions) - {name})
        if others or _launches(node, set(functions)):
            continue
        used = [
            n for n in tree.body
            if isinstance(n, ast.Import | ast.ImportFrom) and _bound(n) & _names(node) - {"torch"}
        ]  # fmt: skip
        return _joined([node], text.splitlines()), tuple(ast.unparse(n) for n in used)
    return "", ()
