"""Start a skill package: a working one from nothing, or a draft around an existing Triton kernel."""

from __future__ import annotations

import json
import keyword
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.models import Name
from kernel_skills.registry.host_function import (
    HostFunction,
    ScalarGuess,
    TensorGuess,
    read_host_function,
)
from kernel_skills.registry.jinja_templates import shipped_templates

ORIGINAL = "kernels/original.py"
KERNEL = "kernels/portable.py"

# Axis lengths by position: odd and small for the interpreter, one past a power of two, and filling a chip
_SMOKE = (3, 37, 21, 17, 5)
_EDGE = (1, 129, 65, 33, 9)
_BENCH: Mapping[int, tuple[int, ...]] = {1: (1 << 25,), 2: (8192, 4096), 3: (2048, 2048, 2048)}


@dataclass(frozen=True)
class Scaffold:
    """What was written, and what its author has to look at."""

    folder: Path
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def new_skill(name: str, parent: Path, kernel: Path | None = None) -> Scaffold:
    """Write the package `parent/name`, whole or not at all.

    Args:
        name: lower-case words joined by hyphens.
        parent: folder of skills; made where it is missing.
        kernel: existing Python file with a `@triton.jit` kernel and the host function that launches it. It is read,
            never run.

    Raises:
        UsageError: the name is malformed, the folder is there already, or `kernel` cannot be read.
        InvalidPackage: no operator can be made out in `kernel`.
    """
    _check_name(name)
    folder = parent / name
    if folder.exists():
        raise UsageError(f"{folder} is there already; choose another name, or remove it")
    draft = _blank(name) if kernel is None else _around(name, read_host_function(kernel))
    parent.mkdir(parents=True, exist_ok=True)
    # dot: nobody who lists the folder meanwhile takes it for a skill
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=parent) as scratch:
        made = Path(scratch) / name
        for path, text in draft.files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        shutil.move(made, folder)
    return Scaffold(folder=folder, files=tuple(draft.files), notes=draft.notes)


@dataclass(frozen=True)
class _Draft:
    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _WorkloadDraft:
    name: str
    purpose: str
    axes: Mapping[str, int]
    dtype: str = "float32"
    inputs: Mapping[str, str] = field(default_factory=dict)
    description: str = ""


def _check_name(name: str) -> None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r} is no skill name; use lower-case words joined by hyphens, at most 64 characters"
        ) from None


def _function_name(name: str) -> str:
    word = name.replace("-", "_")
    if word[0].isdigit():
        return f"op_{word}"
    return f"{word}_op" if keyword.iskeyword(word) or word in ("torch", "triton", "tl") else word


# --- from nothing -----------------------------------------------------------------------------


def _blank(name: str) -> _Draft:
    function = _function_name(name)
    words = {
        **_words(name),
        "summary": "SiLU of each element, until its author puts the operator in its place.",
        "description": "y = x * sigmoid(x), element by element.",
        "notes_description": f"SiLU, x * sigmoid(x), in Triton for every chip. Use as the start of {name}.",
        "function": function,
        "is_blank": True,
        "generic": True,
        "pattern": "fusion",
        # exponential, addition, division, product
        "flops": "4 * rows * cols",
        "axes": [{"name": "rows", "collapses": True}, {"name": "cols", "collapses": False}],
        "inputs": (TensorGuess("x", ("rows", "cols"), "T"),),
        "scalars": (),
        "outputs": (TensorGuess("y", ("rows", "cols"), "T"),),
        "workloads": _blank_workloads(),
        "entry": f"{KERNEL}::{function}",
        "files": (),
        "parameters": {"BLOCK": (256, 512, 1024, 2048, 4096), "WARPS": (2, 4, 8)},
        "reference_source": (
            f"def {function}(x: torch.Tensor) -> torch.Tensor:\n"
            '    """Return x * sigmoid(x), in the dtype of `x`."""\n'
            "    return x * torch.sigmoid(x)\n"
        ),
    }
    return _Draft({**_common_files(words), KERNEL: _render("kernel.py.jinja", words)})


def _blank_workloads() -> list[_WorkloadDraft]:
    def draw(**fields: Any) -> dict[str, str]:
        text = ", ".join(
            f"{key} = {_toml(value)}" for key, value in {"type": "random", **fields}.items()
        )
        return {"x": f"{{ {text} }}"}

    return [
        _WorkloadDraft("odd-width", "smoke", {"rows": 3, "cols": 1023}),
        _WorkloadDraft("half-precision", "smoke", {"rows": 5, "cols": 96}, "float16"),
        _WorkloadDraft(
            "one-past-a-block", "edge", {"rows": 2, "cols": 1025},
            description="The second program of a row holds one element.",
        ),
        _WorkloadDraft(
            "padded-rows", "edge", {"rows": 5, "cols": 257}, "float16", draw(layout="padded", scale=3.0),
            "Rows lie further apart than they are long.",
        ),
        _WorkloadDraft("transposed", "edge", {"rows": 65, "cols": 33}, inputs=draw(layout="transposed")),
        _WorkloadDraft(
            "large-values", "edge", {"rows": 4, "cols": 128}, inputs=draw(scale=1000.0),
            description="exp passes float32.",
        ),
        _WorkloadDraft("empty", "edge", {"rows": 0, "cols": 64}),
        _WorkloadDraft("tokens-16384-hidden-4096", "bench", {"rows": 16384, "cols": 4096}, "bfloat16"),
        _WorkloadDraft("tokens-65536-hidden-1024", "bench", {"rows": 65536, "cols": 1024}, "bfloat16"),
    ]  # fmt: skip


# --- around an existing kernel ----------------------------------------------------------------


def _around(name: str, host: HostFunction) -> _Draft:
    function = host.name if host.fits else _function_name(name)
    direct = host.fits
    parameters = _parameters_of(host)
    described = f"{host.name}({', '.join(host.order)}) -> {', '.join(t.name for t in host.outputs)}"
    words = {
        **_words(name),
        "summary": f"Draft around the Triton kernel of {host.name}; its author has to complete it.",
        "description": described,
        "notes_description": (
            f"{name.replace('-', ' ')} in Triton, around an existing kernel. Say here when an agent should use it."
        ),
        "function": function,
        "is_blank": False,
        "generic": any(tensor.dtype == "T" for tensor in host.inputs),
        "pattern": "fusion",
        "flops": "",
        "axes": [{"name": axis, "collapses": False} for axis in host.axes],
        "inputs": host.inputs,
        "scalars": host.scalars,
        "outputs": host.outputs,
        "workloads": _workloads(host),
        "entry": f"{ORIGINAL if direct else KERNEL}::{function}",
        "files": () if direct else (ORIGINAL,),
        "parameters": {},
        "host": host.name,
        "entry_parameters": parameters,
        "call_arguments": ", ".join(f"{argument}={argument}" for argument in host.order),
        "reference_parameters": parameters,
        "reference_returns": f" -> {_returned_by(host)}",
        "reference_source": _reference_source(host, function),
        "reference_imports": host.reference_imports,
        "small_call": _small_call(host),
    }
    files = {**_common_files(words), ORIGINAL: host.source}
    if not direct:
        files[KERNEL] = _render("adapter.py.jinja", words)
    return _Draft(files, _notes_on(host, direct))


def _parameters_of(host: HostFunction) -> str:
    """Return the parameters of a function that takes what the host function takes, as Python writes them."""
    tensors = [f"{tensor.name}: torch.Tensor" for tensor in host.inputs]
    scalars = [_scalar_parameter(scalar) for scalar in host.scalars]
    return ", ".join([*tensors, *(["*", *scalars] if scalars else [])])


def _returned_by(host: HostFunction) -> str:
    count = len(host.outputs)
    return "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"


def _scalar_parameter(scalar: ScalarGuess) -> str:
    python = {"int64": "int", "bool": "bool", "string": "str"}.get(scalar.dtype, "float")
    if scalar.default is None:
        return f"{scalar.name}: {python}"
    text = _toml(scalar.default) if isinstance(scalar.default, str) else repr(scalar.default)
    return f"{scalar.name}: {python} = {text}"


def _reference_source(host: HostFunction, function: str) -> str:
    """Return the file's own plain PyTorch version, under the name that the manifest gives the reference."""
    if not host.reference:
        return ""
    head, _, rest = host.reference.partition("(")
    start = head[: head.rindex("def ") + 4]
    return f"{start}{function}({rest}"


def _workloads(host: HostFunction) -> list[_WorkloadDraft]:
    axes = host.axes
    bench = _BENCH.get(len(axes), tuple([64] * max(0, len(axes) - 2) + [1024, 128][: len(axes)]))

    def sized(name: str, purpose: str, sizes: Sequence[int], dtype: str) -> _WorkloadDraft:
        lengths = {axis: sizes[position % len(sizes)] for position, axis in enumerate(axes)}
        return _WorkloadDraft(name, purpose, lengths, dtype, _given_inputs(host))

    return [
        sized("odd-sizes", "smoke", _SMOKE, "float32"),
        sized("one-past-a-power-of-two", "edge", _EDGE, "float32"),
        sized("large", "bench", bench, "float16"),
    ]


def _given_inputs(host: HostFunction) -> dict[str, str]:
    """Return the inputs that cannot be drawn from the normal distribution: indices, and scalars without default."""
    # what is indexed is most often the rows of the first other tensor: a table, the logits
    rows = next((tensor.shape[0] for tensor in host.inputs if tensor.dtype == "T"), "1")
    indices = {
        tensor.name: f'{{ type = "integers", high = {_toml(rows)} }}'
        for tensor in host.inputs
        if tensor.dtype == "int64"
    }
    scalars = {
        scalar.name: f'{{ type = "scalar", value = {_toml(_sample(scalar))} }}'
        for scalar in host.scalars
        if scalar.default is None
    }
    return indices | scalars


def _sample(scalar: ScalarGuess) -> bool | int | float | str:
    samples: Mapping[str, bool | int | float | str] = {"int64": 1, "bool": False, "string": ""}
    return samples.get(scalar.dtype, 1.0)


def _small_call(host: HostFunction) -> str:
    sizes = dict(
        zip(host.axes, [_SMOKE[i % len(_SMOKE)] for i in range(len(host.axes))], strict=True)
    )
    arguments = []
    for tensor in host.inputs:
        shape = ", ".join(str(sizes[axis]) for axis in tensor.shape)
        if tensor.dtype == "int64":
            comma = "," if len(tensor.shape) == 1 else ""
            arguments.append(
                f"torch.zeros(({shape}{comma}), dtype=torch.int64, device=kernel.device)"
            )
        else:
            arguments.append(f"kernel.randn({shape})")
    arguments += [f"{s.name}={_sample(s)!r}" for s in host.scalars if s.default is None]
    return ", ".join(arguments)


def _notes_on(host: HostFunction, direct: bool) -> tuple[str, ...]:
    shapes = "; ".join(
        f"{t.name} [{', '.join(t.shape)}] {t.dtype}" for t in (*host.inputs, *host.outputs)
    )
    notes = [f"guessed from {host.name}: {shapes}; correct skill.toml where that is wrong"]
    if not host.reference:
        notes.append("write reference.py: it decides what is right")
    if ".is_cuda" in host.source:
        notes.append(
            f"take the `.is_cuda` test out of {ORIGINAL}: a kernel is also compiled and verified without a GPU"
        )
    if not direct:
        notes.append(f"{KERNEL} adapts the order of the parameters; {ORIGINAL} is as it came")
    notes.append(
        "give the definition its `flops`, and each axis the constraints that the kernel needs"
    )
    return tuple(notes)


# --- writing ----------------------------------------------------------------------------------


def _words(name: str) -> dict[str, Any]:
    return {"name": name, "words": name.replace("-", " ")}


def _common_files(words: Mapping[str, Any]) -> dict[str, str]:
    return {
        "skill.toml": _render("skill.toml.jinja", words),
        "SKILL.md": _render("SKILL.md.jinja", words),
        "reference.py": _render("reference.py.jinja", words),
        "validate.py": _render("validate.py.jinja", words),
        "references/design.md": _render("design.md.jinja", words),
    }


def _render(template: str, words: Mapping[str, Any]) -> str:
    # no escaping of HTML: the results are TOML, Python and Markdown, and every quoted value goes through `q`
    environment = shipped_templates()
    environment.filters["q"] = _toml
    return environment.get_template(template).render({"reference_imports": (), **words})


def _toml(value: bool | int | float | str) -> str:
    """Return a scalar as TOML, which writes strings, numbers and booleans as JSON does."""
    return json.dumps(value, ensure_ascii=False)
