from __future__ import annotations

import signal

import pytest

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.judgement import Judgement, JudgementCut
from kernel_skills.executor.models import Workload
from kernel_skills.executor.trace import Failed, Outcome, Passed, Skipped

from .conftest import KERNEL, JudgeKernel, changed, definition, workload


def only(judgement: Judgement) -> Outcome:
    (judged,) = judgement.judged
    return judged.evaluation


def failure(judgement: Judgement) -> tuple[str, str]:
    outcome = only(judgement)
    assert not judgement.accepted
    return outcome.status, outcome.log  # type: ignore[attr-defined]


def first_line(statement: str) -> str:
    """Return the kernel with a statement before all others of its host function."""
    return changed("    rows, cols = x.shape\n", f"    {statement}\n    rows, cols = x.shape\n")


def at_import(statements: str) -> str:
    return f"{statements}\n{KERNEL}"


# --- right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_kernel_is_accepted_with_its_compile_report(
    judge_kernel: JudgeKernel, dtype: str
) -> None:
    judgement = judge_kernel(
        KERNEL, workload(dtypes={"T": dtype}), stages=("lint", "compile", "verify", "bench")
    )
    outcome = only(judgement)
    assert isinstance(outcome, Passed), outcome
    assert judgement.accepted
    assert outcome.level == "verified-cpu"
    assert outcome.performance is None
    assert [(report.kernel, report.arch) for report in outcome.kernels] == [
        ("scale_kernel", "sm_90")
    ]


def test_what_the_interpreter_cannot_see_is_listed(judge_kernel: JudgeKernel) -> None:
    assert any("speed" in check for check in only(judge_kernel()).checks_not_run)


def test_every_layout_and_an_empty_tensor_pass(judge_kernel: JudgeKernel) -> None:
    layouts = ("padded", "offset", "transposed", "expanded")
    workloads = [
        workload(layout, purpose="edge", inputs={"x": {"type": "random", "layout": layout}})
        for layout in layouts
    ]
    judgement = judge_kernel(KERNEL, *workloads, workload("empty", rows=0, purpose="edge"))
    assert [item.evaluation.status for item in judgement.judged] == ["PASSED"] * 5


def test_a_bench_workload_without_a_gpu_is_skipped_not_passed(judge_kernel: JudgeKernel) -> None:
    outcome = only(judge_kernel(KERNEL, workload(purpose="bench"), stages=("verify", "bench")))
    assert isinstance(outcome, Skipped)
    assert "GPU" in outcome.reason


def test_a_workload_too_large_for_the_interpreter_is_skipped(judge_kernel: JudgeKernel) -> None:
    outcome = only(judge_kernel(KERNEL, workload(rows=4096, cols=4096)))
    assert isinstance(outcome, Skipped)
    assert "too large" in outcome.reason


# --- wrong results ----------------------------------------------------------------------------

WRONG = {
    "other numbers": (changed("x * factor)", "x + factor)"), "INCORRECT_NUMERICAL", "tolerance"),
    "a mask off by one leaves NaN": (
        changed("mask = col < cols", "mask = col < cols - 1"),
        "INCORRECT_NUMERICAL",
        "nan where the reference is",
    ),
    "nothing is written": (changed("if y.numel():", "if False:"), "INCORRECT_NUMERICAL", "nan"),
    "strides are not read": (
        changed("row * row_stride", "row * cols"),
        "INCORRECT_NUMERICAL",
        "strided",
    ),
    "wrong shape": (changed("torch.empty((rows, cols)", "torch.empty((rows, cols, 1)"), "INCORRECT_SHAPE", "(3, 5, 1)"),
    "wrong dtype": (changed("dtype=x.dtype", "dtype=torch.float16"), "INCORRECT_DTYPE", "float16"),
    "one output too many": (changed("return y", "return y, y"), "INCORRECT_SHAPE", "2 values"),
    "no tensor": (changed("return y", "return None"), "INCORRECT_SHAPE", "NoneType"),
    "a subclass of Tensor": (
        changed("return y", "return torch.nn.Parameter(y)"),
        "INCORRECT_SHAPE",
        "Parameter",
    ),
    "an input is changed": (changed("return y", "x.zero_()\n    return y"), "CHEATING", "input was changed"),
    "an input is returned": (changed("return y", "return x"), "CHEATING", "shares its memory"),
    "a view of an input is returned": (
        changed("return y", "return x[:, :]"),
        "CHEATING",
        "shares its memory",
    ),
    "raises": (first_line("raise ValueError('no luck')"), "RUNTIME_ERROR", "no luck"),
    "an error that cannot be shown": (
        first_line("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()"),
        "RUNTIME_ERROR",
        "E",
    ),
    "leaves by sys.exit": (first_line("import sys; sys.exit(0)"), "RUNTIME_ERROR", "SystemExit"),
    "exits with 0": (first_line("import os; os._exit(0)"), "RUNTIME_ERROR", "exit status 0"),
    "segmentation fault": (
        first_line("import ctypes; ctypes.string_at(0)"),
        "RUNTIME_ERROR",
        signal.SIGSEGV.name,
    ),
    "aborts": (first_line("import os; os.abort()"), "RUNTIME_ERROR", signal.SIGABRT.name),
    "aborts while imported": (
        at_import("import os; os.abort()"),
        "RUNTIME_ERROR",
        signal.SIGABRT.name,
    ),
    "import error": (at_import("import no_such_module"), "RUNTIME_ERROR", "no_such_module"),
    "syntax error": (at_import("def ("), "COMPILE_ERROR", "SyntaxError"),
    "no such entry": (changed("def scale(", "def scales("), "RUNTIME_ERROR", "no function 'scale'"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "status", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kernel_has_a_typed_outcome(
    judge_kernel: JudgeKernel, content: str, status: str, words: str
) -> None:
    found, log = failure(judge_kernel(content, timeout_s=20))
    assert found == status
    assert words in log


def test_a_reference_that_raises_is_no_verdict_on_the_candidate(judge_kernel: JudgeKernel) -> None:
    broken = "def scale(x, *, factor):\n    raise ArithmeticError('half a reference')\n"
    with pytest.raises(
        InvalidPackage, match=r"the reference of scale-rows fails, .*half a reference"
    ):
        judge_kernel(files={"reference": broken})


def test_a_reference_that_ends_its_process_is_no_verdict_on_the_candidate(
    judge_kernel: JudgeKernel,
) -> None:
    broken = "import os\n\ndef scale(x, *, factor):\n    os._exit(0)\n"
    with pytest.raises(InvalidPackage, match="the reference of scale-rows fails"):
        judge_kernel(files={"reference": broken})


def test_what_was_only_compiled_is_neither_accepted_nor_rejected(judge_kernel: JudgeKernel) -> None:
    judgement = judge_kernel(stages=("lint", "compile"))
    assert not judgement.accepted
    assert judgement.verdict == "not verified"


def test_an_endless_loop_is_a_timeout(judge_kernel: JudgeKernel) -> None:
    status, log = failure(judge_kernel(first_line("while True: pass"), timeout_s=1.5))
    assert status == "TIMEOUT"
    assert "1.5 s" in log


def test_an_endless_import_is_a_timeout(judge_kernel: JudgeKernel) -> None:
    status, _ = failure(judge_kernel(at_import("while True: pass"), timeout_s=1.5))
    assert status == "TIMEOUT"


def test_a_bad_workload_does_not_disturb_the_next(judge_kernel: JudgeKernel) -> None:
    crash = first_line("if x.shape[0] == 2: import ctypes; ctypes.string_at(0)")
    names = {"before": 3, "crash": 2, "after": 4}
    workloads = [workload(name, rows=rows, purpose="edge") for name, rows in names.items()]
    judgement = judge_kernel(crash, *workloads)
    assert [item.evaluation.status for item in judgement.judged] == [
        "PASSED",
        "RUNTIME_ERROR",
        "PASSED",
    ]


# --- determinism ------------------------------------------------------------------------------

# one unit in the last place more on every second call
UNSTEADY = changed("    rows, cols = x.shape\n", "    rows, cols = x.shape\n    CALLS.append(1)\n    factor *= 1 + (len(CALLS) % 2) * 2**-23\n") + "\nCALLS = []\n"  # fmt: skip


def test_a_result_that_varies_within_tolerance_passes_where_nothing_is_promised(
    judge_kernel: JudgeKernel,
) -> None:
    assert judge_kernel(UNSTEADY).accepted


def test_a_result_that_varies_fails_where_determinism_is_promised(
    judge_kernel: JudgeKernel,
) -> None:
    status, _ = failure(judge_kernel(UNSTEADY, contract=definition(deterministic=True)))
    assert status == "NONDETERMINISTIC"


def test_a_repeat_that_leaves_tolerance_fails(judge_kernel: JudgeKernel) -> None:
    once = UNSTEADY.replace("(len(CALLS) % 2) * 2**-23", "(len(CALLS) - 1)")
    status, log = failure(judge_kernel(once))
    assert status == "NONDETERMINISTIC"
    assert "leaves tolerance" in log


# --- compile ----------------------------------------------------------------------------------

NOT_COMPILED = {
    "unknown operation": (changed("x * factor)", "tl.nope(x))"), "COMPILE_ERROR", "nope"),
    "the host function raises": (first_line("raise ValueError('no luck')"), "RUNTIME_ERROR", "no luck"),
    "segmentation fault": (first_line("import ctypes; ctypes.string_at(0)"), "COMPILE_ERROR", "SIGSEGV"),
    "the import fails": (at_import("import no_such_module"), "RUNTIME_ERROR", "no_such_module"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "status", "words"), NOT_COMPILED.values(), ids=NOT_COMPILED.keys()
)
def test_a_kernel_that_does_not_compile_has_a_typed_outcome(
    judge_kernel: JudgeKernel, content: str, status: str, words: str
) -> None:
    found, log = failure(judge_kernel(content, stages=("compile",)))
    assert found == status
    assert words in log


def test_a_host_function_that_hangs_while_compiled_is_a_timeout(judge_kernel: JudgeKernel) -> None:
    hanging = first_line("while True: pass")
    status, _ = failure(judge_kernel(hanging, stages=("compile",), timeout_s=1.5))
    assert status == "TIMEOUT"


def test_what_did_not_compile_is_not_run(judge_kernel: JudgeKernel) -> None:
    broken = changed("x * factor)", "tl.nope(x))")
    status, _ = failure(judge_kernel(broken, stages=("compile", "verify")))
    assert status == "COMPILE_ERROR"


# --- lint -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        pytest.param(at_import("def ("), "S-syntax", id="syntax"),
        pytest.param(at_import("import os"), "S-import", id="import"),
        pytest.param(changed("def scale(", "def scales("), "S-entry", id="entry"),
    ],
)
def test_a_lint_finding_ends_the_judging(
    judge_kernel: JudgeKernel, content: str, rule: str
) -> None:
    judgement = judge_kernel(content, stages=("lint", "compile", "verify"))
    assert not judgement.accepted
    assert [finding.rule for finding in judgement.findings] == [rule]
    assert only(judgement).status == "LINT_REJECTED"  # type: ignore[attr-defined]


# --- forged answers ---------------------------------------------------------------------------

FORGE = """
import os, json, struct
def forge(answer):
    header = json.dumps(answer).encode()
    for fd in range(3, 32):
        try:
            os.write(fd, struct.pack("<4sIQ", b"KSF1", len(header), 0) + header)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": "PASSED", "log": ""},
        {"outputs": [{"type": "Tensor"}]},
        {"outputs": [{"type": "Tensor", "device": "cpu", "storage_bytes": 0, "aliases_input": False,
                      "dtype": "float32", "shape": [3, 5], "stride": [5, 1], "offset": -1}]},
        {"outputs": 3},
        {},
    ],
)  # fmt: skip
def test_a_forged_answer_is_cheating(judge_kernel: JudgeKernel, answer: object) -> None:
    content = FORGE + first_line(f"forge({answer!r})")
    status, _ = failure(judge_kernel(content, timeout_s=5))
    assert status == "CHEATING"


def test_bytes_that_are_no_frame_are_cheating(judge_kernel: JudgeKernel) -> None:
    content = FORGE + first_line("[os.write(fd, b'x' * 99) for fd in (3, 4, 5, 6) if is_open(fd)]")
    content += "\ndef is_open(fd):\n    return os.path.exists(f'/proc/self/fd/{fd}')\n"
    status, log = failure(judge_kernel(content, timeout_s=5))
    assert status == "CHEATING"
    assert "malformed" in log


def test_a_compile_worker_cannot_name_an_outcome_that_does_not_exist(
    judge_kernel: JudgeKernel,
) -> None:
    content = FORGE + first_line("forge({'failed': 'PASSED', 'log': ''})")
    status, _ = failure(judge_kernel(content, stages=("compile",)))
    assert status == "CHEATING"


# --- a package's own checks -------------------------------------------------------------------

CHECKS = """
from kernel_skills.executor.validation import check

@check("scale-rows")
def check_zero(kernel):
    x = kernel.randn(2, 7)
    kernel.assert_close(kernel(x, factor=0.0), x * 0)

@check("scale-rows")
def check_matches(kernel):
    kernel.assert_matches_reference(kernel.randn(3, 4), factor=1.5)

@check("another")
def check_another(kernel):
    raise AssertionError("a check of another definition ran")
"""


def test_checks_of_the_definition_run_in_each_dtype(judge_kernel: JudgeKernel) -> None:
    judgement = judge_kernel(files={"validate": CHECKS}, dtypes=("float32", "bfloat16"))
    assert [(check.name, check.outcome, check.log) for check in judgement.checks] == [
        ("check_matches", "passed", ""),
        ("check_zero", "passed", ""),
    ]
    assert judgement.accepted


def test_a_failing_check_rejects_with_its_text(judge_kernel: JudgeKernel) -> None:
    failing = (
        CHECKS + '\n@check("scale-rows")\ndef check_sign(kernel):\n    assert False, "minus"\n'
    )
    judgement = judge_kernel(files={"validate": failing}, dtypes=("bfloat16",))
    assert [item.evaluation.status for item in judgement.judged] == ["PASSED"]
    assert not judgement.accepted
    (failed,) = [check for check in judgement.checks if check.outcome == "failed"]
    assert failed.name == "check_sign"
    assert "minus" in failed.log
    assert "bfloat16" in failed.log


def test_a_check_that_meets_nan_says_so(judge_kernel: JudgeKernel) -> None:
    content = changed("x * factor)", "x * factor / (factor != 0))")
    judgement = judge_kernel(content, files={"validate": CHECKS}, dtypes=("float32",))
    assert "elements are NaN or infinite" in judgement.checks[1].log


def test_a_check_outside_the_variants_constraints_is_skipped(judge_kernel: JudgeKernel) -> None:
    judgement = judge_kernel(files={"validate": CHECKS}, constraints=("cols >= 10**6",))
    assert {check.outcome for check in judgement.checks} == {"skipped"}
    assert "10**6" in judgement.checks[0].log


def test_a_crash_in_a_check_fails_that_check_only(judge_kernel: JudgeKernel) -> None:
    crash = first_line("if factor == 0: import ctypes; ctypes.string_at(0)")
    judgement = judge_kernel(crash, files={"validate": CHECKS})
    assert {check.name: check.outcome for check in judgement.checks} == {
        "check_matches": "passed",
        "check_zero": "failed",
    }
    assert "SIGSEGV" in judgement.checks[1].log


# --- seeds and records ------------------------------------------------------------------------


def test_other_seeds_give_the_same_verdict(judge_kernel: JudgeKernel) -> None:
    assert all(judge_kernel(seed=seed).accepted for seed in (1, 2))


def test_a_tuned_configuration_reaches_the_entry_of_its_workload_only(
    judge_kernel: JudgeKernel,
) -> None:
    content = changed("factor=2.0):", "factor=2.0, BLOCK=None):\n    assert BLOCK == x.shape[1]")
    workloads: list[Workload] = [workload(str(n), cols=n, purpose="edge") for n in (4, 8)]
    configs = {item.uuid: {"BLOCK": item.axes["cols"]} for item in workloads}
    assert judge_kernel(content, *workloads, configs=configs).accepted
    refused = judge_kernel(content, *workloads, config={"BLOCK": 4})
    assert [isinstance(item.evaluation, Failed) for item in refused.judged] == [False, True]


def test_a_task_that_fails_midway_keeps_what_was_found(judge_kernel: JudgeKernel) -> None:
    reference = (
        "def scale(x, *, factor):\n    assert x.shape[0] != 4, 'four rows'\n    return x * factor\n"
    )
    fixed = {
        "axes": {"rows": {"type": "var"}, "cols": {"type": "var"}},
        "constraints": ["rows != 4"],
    }
    workloads = (
        workload(purpose="edge"),
        workload("broken", rows=4, purpose="edge"),
        workload("later", rows=2),
    )
    with pytest.raises(JudgementCut, match="four rows") as caught:
        judge_kernel(
            KERNEL, *workloads, files={"reference": reference}, contract=definition(**fixed)
        )
    statuses = [item.evaluation.status for item in caught.value.judgement.judged]
    assert statuses == ["PASSED", "SKIPPED", "SKIPPED"]
    assert caught.value.exit_code == 3
