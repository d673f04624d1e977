"""A problem file as a Task: inputs by name, the reference in any precision, values of other kinds. In the task worker.

The Task of a problem carries a small generated `adapter.py` that hands the problem's module to one of the classes here.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.problem_values import vary
from kernel_skills.executor.seeds import derive_seed

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

    def call(self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any: ...

    def describe(self) -> dict[str, Any]: ...


def make(adapter: Adapter, kind: str, seed: int, device: str) -> dict[str, Any]:
    """Return the inputs of one seed, with their values of one kind (see `problem_kinds.KINDS`)."""
    values = adapter.draw(derive_seed(seed, "values") % 2**31, device)
    return vary(values, kind, derive_seed(seed, kind), adapter.fixed)


def run(adapter: Adapter, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any:
    """Run the reference; in float64 throughout where its inputs are, whatever narrower dtype it names itself."""
    wide = any(tensor.dtype is torch.float64 for tensor in tensors)
    with torch.no_grad(), _widened() if wide else contextlib.nullcontext():
        return adapter.call(tensors, scalars)


class FunctionAdapter:
    """`reference(*inputs)` and `make_inputs(seed)`."""

    def __init__(self, module: ModuleType) -> None:
        self._reference: Callable[..., Any] = _found(module, "reference")
        self._make: Callable[..., Any] = _found(module, "make_inputs")
        self.fixed: frozenset[str] = frozenset()
        self._order = tuple(self._named(0, "cpu"))

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        return _tensors_first(self._named(seed, device))

    def call(self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any:
        names = [name for name in self._order if name not in scalars]
        values = {**dict(zip(names, tensors, strict=True)), **scalars}
        return self._reference(*(values[name] for name in self._order))

    def describe(self) -> dict[str, Any]:
        return {"order": list(self._order)}

    def _named(self, seed: int, device: str) -> dict[str, Any]:
        torch.manual_seed(seed)
        made = self._make(seed)
        if isinstance(made, Mapping):
            return {str(name): _placed(value, device) for name, value in made.items()}
        values = list(made) if isinstance(made, tuple | list) else [made]
        names = _argument_names(self._reference, len(values))
        return {name: _placed(value, device) for name, value in zip(names, values, strict=True)}


class ModelAdapter:
    """KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()`; parameters and buffers are inputs, too."""

    def __init__(self, module: ModuleType) -> None:
        self._class: Callable[..., torch.nn.Module] = _found(module, "Model")
        self._get_inputs: Callable[[], Any] = _found(module, "get_inputs")
        init: Any = getattr(module, "get_init_inputs", list)()
        self._init = list(init) if isinstance(init, tuple | list) else [init]
        self._models: dict[torch.dtype, torch.nn.Module] = {}
        model = self._model(torch.float32)
        self._parameters = [name for name, _ in model.named_parameters()]
        self._buffers = [key for key in model.state_dict() if key not in self._parameters]
        self._order = _argument_names(model.forward, len(self._inputs(0, "cpu")))
        self.fixed = frozenset(_STATE + key for key in (*self._parameters, *self._buffers))

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        own_seed = derive_seed(seed, "parameters") % 2**31
        torch.manual_seed(own_seed)
        state = self._class(*self._init).state_dict()
        keys = (*self._parameters, *self._buffers)
        values = {_STATE + key: _placed(state[key].detach(), device) for key in keys}
        values.update(zip(self._order, self._inputs(seed, device), strict=True))
        return {**_tensors_first(values), PARAMETER_SEED: own_seed}

    def call(self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any:
        keys = (*self._parameters, *self._buffers)
        # a normalisation in training mode changes its buffers
        state = {
            key: tensor.clone() for key, tensor in zip(keys, tensors[: len(keys)], strict=True)
        }
        names = [name for name in self._order if name not in scalars]
        values = {**dict(zip(names, tensors[len(keys) :], strict=True)), **scalars}
        arguments = tuple(values[name] for name in self._order)
        wide = any(tensor.dtype is torch.float64 for tensor in tensors)
        model = self._model(torch.float64 if wide else torch.float32, tensors[0].device)
        return torch.func.functional_call(model, state, arguments)

    def describe(self) -> dict[str, Any]:
        return {
            "order": list(self._order),
            "init": _plain(self._init),
            "parameters": {_STATE + key: key for key in self._parameters},
            "buffers": {_STATE + key: key for key in self._buffers},
        }

    def _inputs(self, seed: int, device: str) -> list[Any]:
        torch.manual_seed(seed)
        return [_placed(value, device) for value in self._get_inputs()]

    def _model(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.nn.Module:
        if dtype not in self._models:
            torch.manual_seed(0)
            model = self._class(*self._init)
            self._models[dtype] = model.double() if dtype is torch.float64 else model
        return self._models[dtype].to(device)


class DefinitionAdapter:
    """A FlashInfer-Bench Definition: `run(*inputs)`, all by position. Its inputs are drawn from its axes."""

    def __init__(self, module: ModuleType, order: list[str]) -> None:
        self._run: Callable[..., Any] = _found(module, "run")
        self._order = order
        self.fixed: frozenset[str] = frozenset()

    def draw(self, seed: int, device: str) -> dict[str, Any]:
        raise NotImplementedError("inputs are drawn from the axes")

    def call(self, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, Any]) -> Any:
        names = [name for name in self._order if name not in scalars]
        values = {**dict(zip(names, tensors, strict=True)), **scalars}
        result = self._run(*(values[name] for name in self._order))
        return list(result.values()) if isinstance(result, dict) else result

    def describe(self) -> dict[str, Any]:
        return {"order": self._order}


@contextlib.contextmanager
def _widened() -> Iterator[None]:
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
