"""A Definition of an installed skill as an operator of PyTorch: opaque to `torch.compile`, differentiable.

Two ways lead to the same kernel. Plain tensors in eager mode go straight to the chosen variant, since a custom
operator's dispatch costs more than many kernels. Traced, fake and wrapped tensors, and calls under a dispatch mode, go
through a `torch.library` operator, whose body makes the same choice.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernel_skills.executor.models import Definition
from kernel_skills.executor.trace import Trace
from kernel_skills.registry.digest import root_digest
from kernel_skills.registry.evidence import current_evidence
from kernel_skills.registry.kernel_binding import Signature, scalar_kind
from kernel_skills.registry.kernel_choice import ReferenceFallback
from kernel_skills.registry.kernel_gradient import Differentiated, gradients, set_up
from kernel_skills.registry.kernel_plan import Plan, kernel_plan
from kernel_skills.registry.kernel_source import InstalledSource
from kernel_skills.registry.models import Skill

_SCHEMA_TYPES = {"float": "float", "int": "SymInt", "bool": "bool", "str": "str"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MOST_PLANS = 1024
"""Shapes remembered by one kernel. A plan is about 2 kB; a server sees hundreds of batch sizes, not thousands."""

_operators: dict[tuple[str, str, str], Operator] = {}
_warned: set[tuple[str, str]] = set()
_lock = threading.RLock()


class Dispatcher:
    """An Operator under the caller's settings, with the plans that it made."""

    def __init__(self, operator: Operator, on_miss: str, config_text: str) -> None:
        self.operator = operator
        self.on_miss = on_miss
        self.config_text = config_text
        self.config: Mapping[str, Any] = json.loads(config_text) if config_text else {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._tensors = operator.signature.tensors
        self._deciding = operator.deciding

    def __call__(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Return all outputs for arguments in the Definition's order, differentiably."""
        needs_grad = False
        for i in self._tensors:
            tensor = values[i]
            if type(tensor) not in _PLAIN:
                return self.through_library(values)
            needs_grad = needs_grad or tensor.requires_grad
        # flop counters and selective checkpointing see operators, not launches
        if torch._C._len_torch_dispatch_stack():
            return self.through_library(values)
        plan = self.plan(values)
        if needs_grad and torch.is_grad_enabled() and not plan.by_reference:
            return Differentiated.apply(self, plan, *values)  # type: ignore[no-any-return, no-untyped-call]
        return plan.run(values)

    def plan(self, values: Sequence[Any]) -> Plan:
        """Return the plan for these arguments, made on their first call."""
        key: list[Any] = []
        for i in self._tensors:
            tensor = values[i]
            key += (tensor.shape, tensor.dtype, tensor.device)
        for i in self._deciding:
            key.append(values[i])
        found = self._plans.get(tuple(key))
        return found if found is not None else self._remember(tuple(key), values)

    def through_library(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        for i in self._tensors:
            if not isinstance(values[i], torch.Tensor):
                name = self.operator.signature.names[i]
                raise TypeError(
                    f"{self.operator.definition.name}: {name}: expected a tensor, got {values[i]!r}"
                )
        result = self.operator.overload()(*values, self.on_miss, self.config_text)
        return result if isinstance(result, tuple) else (result,)

    def _remember(self, key: tuple[Any, ...], values: Sequence[Any]) -> Plan:
        plan = kernel_plan(self.operator, values, self.on_miss, self.config)
        with _lock:
            if len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            return self._plans.setdefault(key, plan)


class Operator:
    """One Definition of one content of a skill. It lives as long as the process: so does its registration."""

    def __init__(self, skill: Skill, definition: Definition, digest: str) -> None:
        self.skill = skill
        self.definition = definition
        self.digest = digest
        self.label = f"{skill.name}@{skill.version}"
        self.signature = Signature(definition)
        self.variants = tuple(v for v in skill.manifest.variant if v.definition == definition.name)
        self.deciding = self.signature.deciding_scalars(self.variants)
        key = hashlib.sha256(f"{skill.path.resolve()}\0{digest}".encode()).hexdigest()[:12]
        self.source = InstalledSource(skill.path, key)
        words = f"{skill.name}_{skill.version}_{definition.name}_{key}"
        self._name = f"kernel_skills::{re.sub(r'[^A-Za-z0-9]', '_', words)}"
        self._dispatchers: dict[tuple[str, str], Dispatcher] = {}
        self._overload: Any = None

    @functools.cached_property
    def evidence(self) -> tuple[Trace, ...]:
        """What was measured of the skill when the first choice was made; read once, files of it may be long."""
        return tuple(current_evidence(self.skill))

    def gradient(self) -> Operator | None:
        """Return the operator of the backward Definition; None where the contract has none."""
        if self.definition.gradient is None:
            return None
        return operator_of(self.skill, self.definition.gradient.definition, self.digest)

    def dispatcher(self, on_miss: str, config_text: str) -> Dispatcher:
        """Return the dispatcher for these settings; the configuration is JSON, empty for none."""
        found = self._dispatchers.get((on_miss, config_text))
        if found is None:
            fresh = Dispatcher(self, on_miss, config_text)
            found = self._dispatchers.setdefault((on_miss, config_text), fresh)
        return found

    def warn(self, reason: str) -> None:
        """Give a ReferenceFallback once per skill and reason."""
        # lengths and values stand in brackets, and are not what makes a reason
        key = (self._name, re.sub(r" \([^()]*\)", "", reason))
        with _lock:
            if key in _warned:
                return
            _warned.add(key)
        message = f"{self.label}: {reason}"
        warnings.warn(message, ReferenceFallback, stacklevel=_callers_level())

    def overload(self) -> Any:
        """Return the `torch.library` operator, registered on the first call.

        It takes the Definition's inputs, then `on_miss` and the configuration as text: text stands for the same
        thing in every process, so compiled graphs may be cached on disk.
        """
        with _lock:
            if self._overload is None:
                self._overload = self._register()
            return self._overload

    def _register(self) -> Any:
        definition = torch.library.custom_op(
            self._name, self._body, mutates_args=(), schema=self._schema()
        )
        definition.register_fake(self._fake)
        definition.register_autograd(self._backward, setup_context=self._set_up)
        return definition._opoverload

    def _schema(self) -> str:
        parts = []
        for name, spec in self.definition.inputs.items():
            if spec.shape is not None:
                parts.append(f"Tensor {name}")
            else:
                optional = "" if name in self.signature.required else "?"
                parts.append(f"{_SCHEMA_TYPES[scalar_kind(spec)]}{optional} {name}")
        count = len(self.definition.outputs)
        returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        return f"({', '.join([*parts, 'str on_miss', 'str config'])}) -> {returns}"

    def _body(self, *arguments: Any) -> Any:
        *values, on_miss, config_text = arguments
        plan = self.dispatcher(on_miss, config_text).plan(values)
        # as the fake says: contiguous, in memory of its own
        outputs = tuple(output.contiguous() for output in plan.run(values))
        if plan.by_reference:
            outputs = _unaliased(outputs, [values[i] for i in self.signature.tensors])
        return outputs[0] if len(outputs) == 1 else outputs

    def _fake(self, *arguments: Any) -> Any:
        values = arguments[:-2]
        bound = self.signature.bind_outputs(values)
        if all(type(size) is int for size in bound.axes.values()):
            # on symbols, a constraint would make the graph special to one shape; the body checks it anyway
            self.signature.check_constraints(self.signature.bind(values))
        device = values[self.signature.tensors[0]].device
        outputs = tuple(
            torch.empty(
                self.signature.caller_shape(name, bound),
                dtype=getattr(torch, self.signature.output_dtype(name, bound)),
                device=device,
            )
            for name in self.definition.outputs
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def _set_up(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *values, on_miss, config_text = inputs
        outputs = output if isinstance(output, tuple) else (output,)
        set_up(ctx, self.dispatcher(on_miss, config_text), values, outputs)

    def _backward(self, ctx: Any, *grads: Any) -> Any:
        return (*gradients(ctx, *grads), None, None)


def operator_of(skill: Skill, definition: str, digest: str | None = None) -> Operator:
    """Return the operator of a skill's Definition, the same one for the same content of the same folder."""
    digest = digest or root_digest(skill.path)
    key = (str(skill.path.resolve()), digest, definition)
    with _lock:
        if key not in _operators:
            _operators[key] = Operator(skill, skill.manifest.definition_named(definition), digest)
        return _operators[key]


def _unaliased(
    outputs: tuple[torch.Tensor, ...], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    seen = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    fresh = []
    for output in outputs:
        address = output.untyped_storage().data_ptr()
        fresh.append(output.clone() if address in seen and output.numel() else output)
        seen.add(address)
    return tuple(fresh)


def _callers_level() -> int:
    """Return the `stacklevel`, seen from the function that asks, of the line that called the kernel: neither ours nor torch's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_between(str(frame.f_globals.get("__name__"))):
        level, frame = level + 1, frame.f_back
    return level


def _is_between(module: str) -> bool:
    return module.startswith(("kernel_skills.", "torch.")) or module == "torch"
