"""The samples that PyTorch's own tests draw for an operator, with the operator as their reference. In the task worker.

`op_db` lists some 700 operators of `torch` with generators of inputs: broadcast, empty, 0-d, with every keyword. Each
sample is a contract of its own, so each has its own Definition.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernel_skills.executor.admission import Bounds, null_that_passes
from kernel_skills.executor.call_tree import NotPassable, decode, encode
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import InvalidPackage, NotFound
from kernel_skills.executor.failure import short_log
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    ConstAxis,
    Definition,
    ScalarInput,
    Task,
    TensorSpec,
    Workload,
)
from kernel_skills.executor.problem_adapter import widened
from kernel_skills.executor.problem_values import is_constant, strided_copy
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.seeds import derive_seed

LAYOUTS = ("given", "strided")
"""As PyTorch draws them, and the same values in padded rows at an offset."""
_KERNEL_DTYPES = ("float32", "float16", "bfloat16")
"""What is judged where nothing is declared: no kernel is asked for float64 that does not offer it."""
_DTYPES = tuple(name for name in DTYPE_BYTES if not name.startswith("float8"))
_ANY_ENTRY = "op_db.py::sample_inputs"

Drawn = tuple[dict[str, torch.Tensor], str]
"""Tensors by name, and the call that holds them as JSON."""


class LeftOut(Exception):
    """Why a sample cannot be judged; says nothing of the candidate."""


@cache
def operators() -> dict[str, Any]:
    """Return PyTorch's list by name, variants as `softmax.with_dtype`."""
    invocations: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    # it hides that an operator draws random numbers
    invocations.wrapper_set_seed = lambda op, *arguments, **keywords: op(*arguments, **keywords)
    named = {}
    for op in invocations.op_db:
        variant = op.variant_test_name.replace(f"{op.name}.", "")
        named[f"{op.name}.{variant}" if variant and op.name != variant else op.name] = op
    return named


def find_operator(name: str) -> Any:
    """Return an operator by its name or alias; `torch.` and `F.` may stand before it.

    Raises:
        NotFound: there is none, with close names.
    """
    known = operators()
    short = name.removeprefix("torch.")
    short = f"nn.functional.{short[2:]}" if short.startswith("F.") else short
    if short in known:
        return known[short]
    for op in known.values():
        if short in [alias.name for alias in op.aliases]:
            return op
    raise NotFound.named("operator in PyTorch's op_db", name, known)


def judged_dtypes(op: Any, asked: Sequence[str], device: str) -> tuple[str, ...]:
    """Return the dtypes to judge: those asked for, else what kernels compute in, else what integers there are.

    Raises:
        NotFound: PyTorch's operator does not take a dtype that is asked for.
    """
    taken = op.supported_dtypes(torch.device(device).type)
    supported = [name for name in _DTYPES if getattr(torch, name) in taken]
    for name in asked:
        if name not in supported:
            raise NotFound.named(f"dtype of {op.name}", name, supported)
    floating = tuple(name for name in _KERNEL_DTYPES if name in supported)
    return tuple(asked) or floating or tuple(n for n in ("int32", "bool") if n in supported)


class SampleReference(Reference):
    """One sample in one dtype and layout, with the operator as its reference."""

    def __init__(self, op: Any, name: str, seed: int, device: str) -> None:
        """Draw the sample, and run the operator on it.

        Args:
            name: `DTYPE-INDEX-LAYOUT`, see `sample_names`.

        Raises:
            LeftOut: the sample cannot be judged.
        """
        self._op, self._device = op, device
        dtype, index, layout = name.split("-")
        self._dtype, self._index, self._strided = (
            getattr(torch, dtype),
            int(index),
            layout == "strided",
        )
        self.sources = SourceTree((), Path("task"))
        self._own = self._sample(seed)
        outputs = self._tried(self._own)
        self.definition = _definition(op, self._own[0], outputs)
        self.workload = Workload(
            definition=self.definition.name, name=name, purpose="edge", axes={},
            inputs={"call": ScalarInput(value=self._own[1])}, generator=_ANY_ENTRY,
        )  # fmt: skip
        self.telling = self._tells(outputs, seed)
        varied = any(not is_constant(output) for output in outputs if output.numel())
        if self.telling and varied:
            # a smoke workload is called without its launches, too: no constant is right here
            self.workload = self.workload.model_copy(update={"purpose": "smoke"})

    def at(self, workload: Workload) -> Reference:
        return self

    def draw(
        self, workload: Workload, seed: int, device: str, layout: str | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return fresh values of the sample; its own where another seed draws another shape."""
        drawn = self._sample(seed)
        alike = [(t.shape, t.dtype) for t in drawn[0].values()] == [
            (t.shape, t.dtype) for t in self._own[0].values()
        ]
        tensors, call = drawn if alike else self._own
        return dict(tensors), {"call": call}

    def run(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        with self._blamed(f"PyTorch's {self._op.name}"):
            return self._applied(tensors, scalars["call"])

    def exact(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        with widened():
            return super().exact(tensors, scalars)

    def _sample(self, seed: int) -> Drawn:
        drawn = next(islice(samples(self._op, self._dtype, seed, self._device), self._index, None))
        try:
            tensors, call = encode((drawn.input, *drawn.args), drawn.kwargs)
        except NotPassable as error:
            raise LeftOut(str(error)) from None
        if not tensors:
            raise LeftOut("it has no tensor")
        if strange := [t.dtype for t in tensors.values() if _name(t) not in DTYPE_BYTES]:
            raise LeftOut(f"a tensor is {strange[0]}")
        tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        if self._strided:
            tensors = {name: strided_copy(tensor) for name, tensor in tensors.items()}
        return tensors, call

    def _tried(self, drawn: Drawn) -> list[torch.Tensor]:
        """Run the operator twice, and once in float64; return what it computes."""
        tensors, call = drawn
        try:
            torch.manual_seed(1)
            outputs = self._applied(tensors, call)
            torch.manual_seed(2)
            again = self._applied(tensors, call)
        except LeftOut:
            raise
        except Exception as error:  # noqa: BLE001 - PyTorch refuses some of its own samples on some devices
            raise LeftOut(f"PyTorch refuses it: {_last_line(error)}") from None
        if not all(map(_alike, outputs, again)):
            raise LeftOut("the operator draws random numbers")
        try:
            exact = self.exact(tensors, {"call": call})
        except Exception as error:  # noqa: BLE001 - as above
            raise LeftOut(f"it does not run in float64: {_last_line(error)}") from None
        if [output.shape for output in exact] != [output.shape for output in outputs]:
            raise LeftOut("the output has another shape in float64")
        return outputs

    def _applied(self, tensors: Mapping[str, torch.Tensor], call: str) -> list[torch.Tensor]:
        # some operators write into an argument (`embedding` with a largest norm)
        own = {name: tensor.clone() for name, tensor in tensors.items()}
        arguments, keywords = decode(call, own)
        with torch.no_grad():
            result = self._op.op(*arguments, **keywords)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        for output in outputs:
            if type(output) is not torch.Tensor or output.layout is not torch.strided:
                raise LeftOut(f"the operator returns a {type(output).__name__}")
            if _name(output) not in DTYPE_BYTES:
                raise LeftOut(f"the operator returns {output.dtype}")
        return outputs

    def _tells(self, honest: Sequence[torch.Tensor], seed: int) -> bool:
        """Tell whether zeros, the mean, an input and other inputs' output all fail here."""
        tensors, call = self._own
        others, scalars = self.draw(self.workload, derive_seed(seed, "other"), self._device)
        if scalars["call"] != call:
            others = tensors
        elif [o.shape for o in self._applied(others, call)] != [o.shape for o in honest]:
            raise LeftOut("the shape of the output depends on the values")
        if not any(output.numel() for output in honest):
            return False
        exact = self.exact(tensors, {"call": call})
        bounds = Bounds(self, self.workload, exact, honest)
        return not null_that_passes(bounds, self, tensors, others, {"call": call})


class OpInfoReference(Reference):
    """An operator with all its samples; `at` names one."""

    def __init__(self, task: Task, device: str) -> None:
        assert task.opinfo is not None, "a Task of samples names its operator"
        self.definition, self.sources = task.definition, SourceTree(task.sources, Path("task"))
        self._source, self._device = task.opinfo, device
        self._references: dict[str, SampleReference] = {}

    def at(self, workload: Workload) -> Reference:
        return self._sample(workload.name)

    def _sample(self, name: str) -> SampleReference:
        if name not in self._references:
            op = find_operator(self._source.op)
            made = SampleReference(op, name, self._source.seed, self._device)
            self._references[name] = made
        return self._references[name]

    def describe(self) -> dict[str, Any]:
        """Return every sample with its contract, and what is left out of each dtype with the reason and how often.

        Where there is no such operator or dtype, the answer says so in `not_found` and holds nothing else.
        """
        try:
            op = find_operator(self._source.op)
            dtypes = judged_dtypes(op, self._source.dtypes, self._device)
        except NotFound as error:
            return {"not_found": str(error)}
        found: list[dict[str, Any]] = []
        left_out: dict[str, dict[str, int]] = {dtype: {} for dtype in dtypes}
        for dtype in dtypes:
            for name in sample_names(op, dtype, self._source.seed, self._device):
                try:
                    sample = self._sample(name)
                except LeftOut as reason:
                    counts = left_out[dtype]
                    counts[str(reason)] = counts.get(str(reason), 0) + 1
                    continue
                found.append(
                    {
                        "dtype": dtype,
                        "telling": sample.telling,
                        "definition": sample.definition.model_dump(mode="json"),
                        "workload": sample.workload.model_dump(mode="json"),
                    }
                )
        return {"dtypes": list(dtypes), "samples": found, "left_out": left_out}


def samples(op: Any, dtype: torch.dtype, seed: int, device: str) -> Iterator[Any]:
    """Yield PyTorch's samples of one seed, in its order."""
    # its generators draw from all three
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    yield from op.sample_inputs_func(op, device, dtype, False)


def sample_names(op: Any, dtype: str, seed: int, device: str) -> list[str]:
    """Return `DTYPE-INDEX-LAYOUT` for every sample of a dtype.

    Raises:
        InvalidPackage: PyTorch's generator raises.
    """
    try:
        count = sum(1 for _ in samples(op, getattr(torch, dtype), seed, device))
    except Exception as error:
        raise InvalidPackage(
            f"PyTorch draws no samples of {op.name} in {dtype}: {_last_line(error)}"
        ) from error
    return [f"{dtype}-{index}-{layout}" for index in range(count) for layout in LAYOUTS]


def _definition(
    op: Any, tensors: Mapping[str, torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Definition:
    axes: dict[str, ConstAxis] = {}

    def spec(name: str, tensor: torch.Tensor) -> TensorSpec:
        named = {f"{name}_{at}": ConstAxis(value=size) for at, size in enumerate(tensor.shape)}
        axes.update(named)
        return TensorSpec(shape=tuple(named), dtype=_name(tensor))

    inputs = {name: spec(name, tensor) for name, tensor in tensors.items()}
    inputs["call"] = TensorSpec(dtype="string")
    results = {f"output{at}": spec(f"output{at}", output) for at, output in enumerate(outputs)}
    return Definition(
        name="opinfo", op_type="opinfo", description=op.name, axes=axes, inputs=inputs,
        outputs=results, reference=_ANY_ENTRY, standard_baselines=(),
    )  # fmt: skip


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.nan_to_num() if one.is_floating_point() else one,
        other.nan_to_num() if other.is_floating_point() else other,
    )


def _last_line(error: Exception) -> str:
    lines = [line for line in short_log(error).splitlines() if line.strip()]
    return lines[-1][:160] if lines else type(error).__name__
