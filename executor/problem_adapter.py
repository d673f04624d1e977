"""A problem file as a Task: inputs by name, the reference in any precision, values of other kinds. In the task worker.

The Task of a problem carries a small generated `adapter.py` that hands the problem's module to one of the classes here.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from kernel_skills.executor.call_tree import decode_value, encode_value
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.inputs import draw_inputs
from kernel_skills.executor.models import Definition, Workload
from kernel_skills.executor.problem_values import vary
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.workload_values import scalar_values

PARAMETER_SEED = "parameter_seed"
_STATE = "state."
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_NARROWING_METHODS = ("float", "half", "bfloat16")


class Adapter(Protocol):
    """What a form of problem must offer."""

    fixed: frozenset[str]
    """Inputs that only `redrawn` may vary (parameters), or nothing may (buffers)."""

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        """Return all inputs by name, tensors first."""

    def bound(
        self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]
    ) -> Callable[[], Any]:
        """Return the reference, ready to be called on these inputs."""

    def describe(self) -> dict[str, Any]: ...


def make(adapter: Adapter, kind: str, seed: int, device: str) -> dict[str, Any]:
    """Return the inputs of one seed, with their values of one kind (see `problem_kinds.KINDS`)."""
    values = adapter.draw(derive_seed(seed, "values") % 2**31, device)
    return vary(values, kind, derive_seed(seed, kind), adapter.fixed)


def run(adapter: Adapter, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any:
    """Run the reference; in float64 throughout where its inputs are, whatever narrower dtype it names itself."""
    wide = any(tensor.dtype is torch.float64 for tensor in tensors)
    # a module is constructed in float32 either way: what it draws there would differ
    call = adapter.bound(tensors, scalars)
    with torch.no_grad(), widened() if wide else contextlib.nullcontext():
        return _flat(call())


def _flat(result: Any) -> Any:
    """Return tuples, lists and mappings as one list, without what is None; anything else as it is."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if not isinstance(result, tuple | list):
        return result
    parts = [_flat(item) for item in result if item is not None]
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


class _Arguments:
    """The arguments of a call: tensors by name, and lists, dictionaries and None as groups of parts."""

    def __init__(self) -> None:
        self.order: tuple[str, ...] = ()
        self.groups: dict[str, str] = {}

    def named(self, names: tuple[str, ...], values: list[Any], device: str) -> dict[str, Any]:
        """Return what is drawn by name, groups taken apart; they are taken apart alike at every draw."""
        self.order = names
        found: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            if isinstance(value, list | tuple | dict | None):
                tensors, self.groups[name] = encode_value(value, name)
                found.update({key: _placed(tensor, device) for key, tensor in tensors.items()})
            else:
                found[name] = _placed(value, device)
        return _tensors_first(found)

    def of(self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in order."""
        grouped = {name: decode_value(text, tensors) for name, text in self.groups.items()}
        values = {**tensors, **scalars, **grouped}
        return [values[name] for name in self.order]


class FunctionAdapter:
    """`reference(*inputs)` and `make_inputs(seed)`."""

    def __init__(self, module: ModuleType) -> None:
        self._reference: Callable[..., Any] = _found(module, "reference")
        self._make: Callable[..., Any] = _found(module, "make_inputs")
        self.fixed: frozenset[str] = frozenset()
        self._arguments = _Arguments()
        self._tensors: tuple[str, ...] = ()

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        made = _made_on(device, seed, lambda: self._make(seed))
        if isinstance(made, Mapping):
            names, values = tuple(map(str, made)), list(made.values())
        else:
            values = list(made) if isinstance(made, tuple | list) else [made]
            names = _argument_names(self._reference, len(values))
        drawn = self._arguments.named(names, values, device)
        self._tensors = _tensor_names(drawn)
        return drawn

    def bound(
        self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]
    ) -> Callable[[], Any]:
        if not self._tensors:
            # nothing was drawn in this process yet, and a draw says which input is which
            self.draw(0, str(tensors[0].device))
        named = dict(zip(self._tensors, tensors, strict=True))
        arguments = self._arguments.of(named, scalars)
        return lambda: self._reference(*arguments)

    def describe(self) -> dict[str, Any]:
        return {"order": list(self._arguments.order), "groups": self._arguments.groups}


class ModelAdapter:
    """KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()`; parameters and buffers are inputs, too."""

    def __init__(self, module: ModuleType, evaluation: bool = False, dtype: str = "") -> None:
        """Read the form.

        Args:
            evaluation: the module is put into evaluation mode.
            dtype: of the module and of floating inputs; empty leaves them.
        """
        self._class: Callable[..., torch.nn.Module] = _found(module, "Model")
        self._get_inputs: Callable[[], Any] = _found(module, "get_inputs")
        self._init, self._init_keywords = _constructor_arguments(module)
        self._evaluation, self._dtype = evaluation, dtype
        self._model: tuple[tuple[int, str], torch.nn.Module] | None = None
        self._arguments = _Arguments()
        self._tensors: tuple[str, ...] = ()
        self._parameters: list[str] = []
        self._buffers: list[str] = []
        self.fixed: frozenset[str] = frozenset()

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        own_seed = derive_seed(seed, "parameters") % 2**31
        model = self._constructed(own_seed, device)
        state = {_STATE + key: parameter.detach() for key, parameter in model.named_parameters()}
        self._parameters = list(state)
        state.update({_STATE + key: buffer for key, buffer in model.named_buffers()})
        self._buffers = [key for key in state if key not in self._parameters]
        self.fixed = frozenset(state)
        made = _made_on(device, seed, self._get_inputs)
        values = [self._cast(value) for value in made]
        names = _argument_names(model.forward, len(values))
        inputs = self._arguments.named(names, values, device)
        # a buffer that the call changes must not change what was drawn
        kept = {
            key: tensor.clone() if key in self._buffers else tensor for key, tensor in state.items()
        }
        drawn = _tensors_first({**kept, **inputs})
        self._tensors = _tensor_names(drawn)
        return {**drawn, PARAMETER_SEED: own_seed}

    def bound(
        self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]
    ) -> Callable[[], Any]:
        if not self._tensors:
            # nothing was drawn in this process yet, and a draw says which input is which
            self.draw(0, str(tensors[0].device))
        named = dict(zip(self._tensors, tensors, strict=True))
        state = {key.removeprefix(_STATE): named[key] for key in self._parameters}
        # a normalisation in training mode changes its buffers
        state.update({key.removeprefix(_STATE): named[key].clone() for key in self._buffers})
        arguments = tuple(self._arguments.of(named, scalars))
        model = self._constructed(scalars[PARAMETER_SEED], str(tensors[0].device))
        return lambda: torch.func.functional_call(model, state, arguments)

    def describe(self) -> dict[str, Any]:
        return {
            "order": list(self._arguments.order),
            "groups": self._arguments.groups,
            "init": _plain(self._init),
            "init_keywords": {key: _plain(value) for key, value in self._init_keywords.items()},
            "parameters": {key: key.removeprefix(_STATE) for key in self._parameters},
            "buffers": {key: key.removeprefix(_STATE) for key in self._buffers},
            "evaluation": self._evaluation,
            "dtype": self._dtype,
        }

    def _cast(self, value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(getattr(torch, self._dtype)) if floating and self._dtype else value

    def _constructed(self, seed: int, device: str) -> torch.nn.Module:
        """Return the module as the candidate's is constructed: what it draws beside its parameters is the same.

        The last one is kept: its parameters are the drawn ones themselves, and a large model has room for one only.
        """
        key = (seed, device)
        if self._model is None or self._model[0] != key:
            self._model = None
            torch.manual_seed(seed)
            with torch.device(device):
                model = self._class(*self._init, **self._init_keywords)
            model.to(device, getattr(torch, self._dtype) if self._dtype else None)
            self._model = key, model.train(not self._evaluation) if self._evaluation else model
        return self._model[1]


class DefinitionAdapter:
    """A FlashInfer-Bench Definition: `run(*inputs)`, all by position. Its inputs are drawn from its axes."""

    def __init__(self, module: ModuleType, order: list[str]) -> None:
        self._run: Callable[..., Any] = _found(module, "run")
        self._order = order
        self.fixed: frozenset[str] = frozenset()

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        raise NotImplementedError("inputs are drawn from the axes")

    def bound(
        self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]
    ) -> Callable[[], Any]:
        names = [name for name in self._order if name not in scalars]
        values = {**dict(zip(names, tensors, strict=True)), **scalars}
        arguments = [values[name] for name in self._order]
        return lambda: self._run(*arguments)

    def describe(self) -> dict[str, Any]:
        return {"order": self._order}


def make_stored(
    definition: str, workload: str, stored: Mapping[str, str], seed: int, device: str
) -> dict[str, Any]:
    """Return the inputs of a FlashInfer-Bench workload: some from its files, the rest drawn.

    Args:
        definition, workload: as JSON; the workload says nothing of what is stored.
        stored: input -> its bytes in base64, in the definition's dtype and shape.
    """
    contract = Definition.model_validate_json(definition)
    drawn_for = Workload.model_validate_json(workload)
    tensors = draw_inputs(contract, drawn_for, seed, device)
    for name, text in stored.items():
        data = bytearray(base64.b64decode(text))
        like = tensors[name]
        found = torch.frombuffer(data, dtype=like.dtype) if data else like.flatten().cpu()
        tensors[name] = found.view(like.shape).to(device)
    return {**tensors, **scalar_values(contract, drawn_for)}


@contextlib.contextmanager
def widened() -> Iterator[None]:
    """Compute in float64 even where a reference says float32: constants it makes, and casts it writes out."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(before)


class _Widening(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        args = tuple(
            torch.float64 if isinstance(arg, torch.dtype) and arg in _NARROW else arg
            for arg in args
        )
        kwargs = {
            key: torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
            for key, value in (kwargs or {}).items()
        }
        if getattr(func, "__name__", "") in _NARROWING_METHODS and len(args) == 1:
            return args[0].double()
        return func(*args, **kwargs)


def _found(module: ModuleType, name: str) -> Callable[..., Any]:
    value = getattr(module, name, None)
    if not callable(value):
        raise InvalidPackage(f"the problem defines no {name!r}")
    return value  # type: ignore[no-any-return]


def _argument_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of the first positional arguments, or made-up ones where they do not fit."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in found if parameter.kind in kinds]
    return tuple(names[:count]) if len(names) >= count else tuple(f"in{i}" for i in range(count))


def _constructor_arguments(module: ModuleType) -> tuple[list[Any], dict[str, Any]]:
    """Return what `get_init_inputs` gives: a list, a dictionary of keywords, or `[[…], {…}]`, both."""
    init: Any = getattr(module, "get_init_inputs", list)()
    if isinstance(init, Mapping):
        return [], dict(init)
    values = list(init) if isinstance(init, tuple | list) else [init]
    if len(values) == 2 and isinstance(values[0], tuple | list) and isinstance(values[1], Mapping):
        return list(values[0]), dict(values[1])
    return values, {}


def _made_on(device: str, seed: int, make: Callable[[], Any]) -> Any:
    """Draw on the device, which is a hundred times faster for gigabytes; on the host where a generator asks for it."""
    torch.manual_seed(seed)
    if device == "cpu":
        return make()
    try:
        with torch.device(device):
            return make()
    except RuntimeError:
        torch.manual_seed(seed)
        return make()


def _tensor_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, value in values.items() if isinstance(value, torch.Tensor))


def _placed(value: Any, device: str) -> Any:
    return value.detach().to(device) if isinstance(value, torch.Tensor) else value


def _tensors_first(values: Mapping[str, Any]) -> dict[str, Any]:
    ordered = sorted(values, key=lambda name: not isinstance(values[name], torch.Tensor))
    return {name: values[name] for name in ordered}


def _plain(value: Any) -> Any:
    """Return constructor arguments as JSON; a module takes a list where it takes a tuple."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return value
    raise InvalidPackage(
        f"get_init_inputs returns a {type(value).__name__}: numbers, text and lists are taken"
    )
