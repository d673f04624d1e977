"""Kernels that touch memory outside of their tensors, or race for it, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_skills.executor.shadow_memory import Access, Memory, Programs, find_conflict
from kernel_skills.executor.trace import Failed, Passed

from .conftest import JudgeKernel, changed, definition, workload

LOAD = "tl.load(x_ptr + row * row_stride + col * col_stride, mask=mask, other=0.0).to(tl.float32)"
STORE = (
    "    tl.store(y_ptr + row * cols + col, (x * factor).to(y_ptr.dtype.element_ty), mask=mask)\n"
)

OUTSIDE = {
    "a load past the end": (
        changed(LOAD, "tl.load(x_ptr + row * row_stride + col * col_stride).to(tl.float32)"),
        "scale_kernel reads out of bounds: 3 elements of 4 bytes in program (2, 0, 0), the first 0 bytes after the"
        " end of x_ptr",
    ),
    "a load before the start whose value is not used": (
        changed(LOAD, f"{LOAD}\n    tl.load(x_ptr - 4096 + col)"),
        # which tensor is nearest depends on where they were allocated
        "scale_kernel reads out of bounds: 8 elements of 4 bytes in program (0, 0, 0), the first ",
    ),
    "a load that lies across the end": (
        changed(LOAD, f"{LOAD}\n    tl.load((x_ptr + 14).to(tl.pointer_type(tl.int64), bitcast=True))"),
        "1 elements of 8 bytes in program (0, 0, 0), the first across the end of x_ptr",
    ),
    "a store past the end": (
        changed(STORE, f"{STORE}    tl.store(y_ptr + 15, 0.0, mask=row == 2)\n"),
        "scale_kernel writes out of bounds: 1 elements of 4 bytes in program (2, 0, 0)",
    ),
    "an atomic past the end": (
        changed(STORE, f"{STORE}    tl.atomic_add(y_ptr + 15 + row, 1.0)\n"),
        "scale_kernel updates out of bounds",
    ),
    "a swap past the end": (
        changed(STORE, f"{STORE}    tl.atomic_cas(y_ptr.to(tl.pointer_type(tl.int32)) + 15, 0, 1)\n"),
        "scale_kernel updates out of bounds",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "words"), OUTSIDE.values(), ids=OUTSIDE.keys())
def test_memory_outside_of_the_tensors(judge_kernel: JudgeKernel, content: str, words: str) -> None:
    outcome = judge_kernel(content).judged[0].evaluation
    assert isinstance(outcome, Failed), outcome
    assert (outcome.status, outcome.rule) == ("RUNTIME_ERROR", "R-sanitizer"), outcome.log
    assert words in outcome.log


def in_halves(body: str, *, scratch: str = "") -> str:
    """Return a kernel whose programs (row, 0) and (row, 1) share a row; `flag` is an int32 for each row."""
    content = changed("scale_kernel[(rows,)](x, y,", "scale_kernel[(rows, 2)](x, y, flag, part,")
    content = content.replace("(x_ptr, y_ptr,", "(x_ptr, y_ptr, flag, part,")
    content = content.replace(
        "    if y.numel():",
        "    flag = torch.zeros((rows,), dtype=torch.int32, device=x.device)\n"
        f"    part = torch.empty((rows, 2), device=x.device)\n{scratch}    if y.numel():",
    )
    return content.replace(STORE, body)


ZEROED = "    y.zero_()\n"
ADD = (
    "    half = tl.where(col % 2 == tl.program_id(1), x * factor, 0.0)\n"
    "    at = y_ptr + row * cols + col\n"
    "{before}"
    "    tl.store(at, (tl.load(at, mask=mask).to(tl.float32) + half).to(y_ptr.dtype.element_ty), mask=mask)\n"
    "{after}"
)
LOCK = "    while tl.atomic_cas(flag + row, 0, 1{order}) == 1:\n        pass\n"
UNLOCK = "    tl.atomic_xchg(flag + row, 0{order})\n"
RELAXED = ', sem="relaxed"'
LAST_ONE = (
    "    tl.store(part + row * 2 + tl.program_id(1), tl.program_id(1).to(tl.float32))\n"
    "    if tl.atomic_add(flag + row, 1{order}) == 1:\n"
    "        both = tl.sum(tl.load(part + row * 2 + tl.arange(0, 2)), 0)\n"
    "        tl.store(y_ptr + row * cols + col, (x * factor * both).to(y_ptr.dtype.element_ty), mask=mask)\n"
)

RACES = {
    "adding without an atomic": in_halves(ADD.format(before="", after=""), scratch=ZEROED),
    "a lock that orders nothing": in_halves(
        ADD.format(before=LOCK.format(order=RELAXED), after=UNLOCK.format(order=RELAXED)), scratch=ZEROED
    ),
    "an atomic that does not stand between": in_halves(
        ADD.format(before="", after=UNLOCK.format(order="")), scratch=ZEROED
    ),
    "the last one reads what was not released": in_halves(LAST_ONE.format(order=RELAXED)),
    "a store beside an atomic": in_halves(
        "    tl.store(part + row * 2, 1.0, mask=tl.program_id(1) == 0)\n"
        f"    tl.atomic_add(part + row * 2, 1.0)\n{STORE}"
    ),
    "a load of what a later program stores": in_halves(
        f"    tl.load(part + 1 + row * 2)\n    tl.store(part + row * 2 + tl.program_id(1), 2.0)\n{STORE}"
    ),
    "different values in one place": in_halves(
        f"    tl.store(part + row * 2, tl.program_id(1).to(tl.float32))\n{STORE}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("content", RACES.values(), ids=RACES.keys())
def test_a_race_between_programs(judge_kernel: JudgeKernel, content: str) -> None:
    outcome = judge_kernel(content).judged[0].evaluation
    assert isinstance(outcome, Failed), outcome
    assert (outcome.status, outcome.rule) == ("RUNTIME_ERROR", "R-sanitizer"), outcome.log
    assert "race between programs of scale_kernel: byte" in outcome.log
    assert "nothing orders the two" in outcome.log


HONEST = {
    "an address that is masked off": changed(
        LOAD,
        f"{LOAD}\n    tl.load(x_ptr + (col + (1 << 30)), mask=col < 0)\n    tl.load(x_ptr + col - 99, mask=col > 99)",
    ),
    "two programs that store the same": in_halves(STORE),
    "a lock": in_halves(
        ADD.format(before=LOCK.format(order=""), after=UNLOCK.format(order="")), scratch=ZEROED
    ),
    "a lock that says what it acquires and releases": in_halves(
        ADD.format(before=LOCK.format(order=', sem="acquire"'), after=UNLOCK.format(order=', sem="release"')),
        scratch=ZEROED,
    ),
    "the last one adds up": in_halves(LAST_ONE.format(order="")),
    "atomics alone": in_halves(f"    tl.atomic_add(part + tl.arange(0, 2), 1.0)\n{STORE}", scratch="    part.zero_()\n"),
    "more than one call of a kernel": changed(
        "        scale_kernel[", "        for _ in range(2):\n          scale_kernel["
    ),
}  # fmt: skip


@pytest.mark.parametrize("content", HONEST.values(), ids=HONEST.keys())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_no_finding(judge_kernel: JudgeKernel, content: str, dtype: str) -> None:
    contract = definition(deterministic=False)
    outcome = (
        judge_kernel(content, workload(dtypes={"T": dtype}), contract=contract).judged[0].evaluation
    )
    assert isinstance(outcome, Passed), outcome


def test_a_call_is_not_blamed_for_the_one_before(judge_kernel: JudgeKernel) -> None:
    content = changed(LOAD, f"{LOAD}\n    tl.load(x_ptr + 4096 + col, mask=cols == 5)")
    outcomes = judge_kernel(content, workload(), workload("wide", cols=6)).judged
    first, second = (judged.evaluation for judged in outcomes)
    assert isinstance(first, Failed) and first.rule == "R-sanitizer"
    # its own fuzzed shapes may have five columns, too; as declared it has none of the first's findings
    assert not isinstance(second, Failed) or "cols=5" in second.log


# --- the memory itself ------------------------------------------------------------------------


def touch(
    memory: Memory, programs: Programs, access: Access, addresses: list[int], width: int
) -> bool:
    programs.tick()
    at = np.array(addresses, dtype=np.uint64)
    return find_conflict(memory, programs, at, width, access) is not None


@pytest.mark.parametrize(
    ("widths", "addresses", "races"),
    [
        ((4, 4), (100, 104), False),
        ((4, 4), (100, 100), True),
        ((4, 1), (100, 103), True),
        ((4, 1), (100, 104), False),
        ((1, 1), (100, 101), False),
        ((8, 4), (104, 108), True),
        ((4, 4), (102, 105), True),
        ((4, 8), (110, 104), True),
    ],
)
def test_elements_of_several_widths_in_one_memory(
    widths: tuple[int, int], addresses: tuple[int, int], races: bool
) -> None:
    memory, programs = Memory("x", 100, 40, 4), Programs()
    for index, (width, address) in enumerate(zip(widths, addresses, strict=True)):
        programs.start()
        found = touch(memory, programs, "write", [address], width)
        assert found == (races and index == 1)


def test_a_chain_of_flags_orders_and_a_break_in_it_does_not() -> None:
    for broken in (False, True):
        memory, programs = Memory("x", 0, 64, 4), Programs()
        programs.start()
        touch(memory, programs, "write", [0], 4)
        programs.release(1000)
        programs.start()
        if not broken:
            programs.tick()
            programs.acquire(1000)
        programs.tick()
        programs.release(2000)
        programs.start()
        programs.tick()
        programs.acquire(2000)
        assert touch(memory, programs, "read", [0], 4) == broken


def test_what_is_stored_after_the_release_is_not_ordered() -> None:
    memory, programs = Memory("x", 0, 64, 4), Programs()
    programs.start()
    programs.tick()
    programs.release(1000)
    touch(memory, programs, "write", [0], 4)
    programs.start()
    programs.tick()
    programs.acquire(1000)
    assert touch(memory, programs, "read", [0], 4)
