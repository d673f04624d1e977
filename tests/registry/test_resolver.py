from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kernel_skills.executor.errors import InvalidPackage, NotFound, Unsatisfiable
from kernel_skills.executor.models import Workload
from kernel_skills.executor.trace import Trace
from kernel_skills.registry.resolver import Resolution, resolve
from kernel_skills.registry.shape import shape_of

if TYPE_CHECKING:
    from tests.registry.conftest import MakeTrace, Package

TOOLCHAIN = {"torch": "2.13.0+cpu", "triton": "3.6.0"}
Pick = Callable[..., Resolution]
BF16 = {"T": "bfloat16"}


@pytest.fixture
def pick(package: Package) -> Pick:
    def resolve_it(
        target: str = "sm_90",
        toolchain: Mapping[str, str] = TOOLCHAIN,
        evidence: tuple[Trace, ...] = (),
        **call: Any,
    ) -> Resolution:
        return resolve(package.load(), "row-scale", target, toolchain, evidence=evidence, **call)

    return resolve_it


def reasons(resolution: Resolution) -> dict[str, str]:
    return {rejection.variant.id: rejection.reason for rejection in resolution.rejected}


def test_the_variant_for_the_chip_is_preferred_and_the_other_says_why_not(pick: Pick) -> None:
    found = pick(axes={"rows": 8, "cols": 64}, dtypes=BF16)
    assert found.chosen.id == "hopper"
    assert reasons(found) == {
        "portable": "fits, but was not measured beside hopper, whose preference is 10"
    }


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"target": "sm_100"}, "made for sm_90, not for sm_100"),
        ({"target": "gfx942"}, "made for sm_90, not for gfx942"),
        ({"dtypes": {"T": "float32"}}, "takes T in bfloat16, not in float32"),
        ({"axes": {"rows": 8, "cols": 63}}, "the variant asks for `cols % 8 == 0` (cols=63)"),
        ({"toolchain": {"triton": "3.8.1"}}, "needs triton >=3.6,<3.8, here is 3.8.1"),
    ],
)
def test_what_does_not_fit_is_rejected_in_words(
    pick: Pick, call: dict[str, Any], reason: str
) -> None:
    found = pick(**{"axes": {"rows": 8, "cols": 64}, "dtypes": BF16, **call})
    assert found.chosen.id == "portable"
    assert reasons(found)["hopper"] == reason


def test_a_target_may_be_given_by_its_name(pick: Pick) -> None:
    assert pick("h200").chosen.id == "hopper"
    assert pick("a100").chosen.id == "portable"


def test_the_cpu_takes_only_what_the_interpreter_runs(pick: Pick, package: Package) -> None:
    assert pick("cpu").chosen.id == "portable"
    package.edit("skill.toml", 'archs = ["any"]', 'archs = ["any"]\ninterpretable = false')
    with pytest.raises(Unsatisfiable, match="portable: does not run in the interpreter"):
        pick("cpu")


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1+git1234", "3.6.0a0+vendor.1"])
def test_builds_of_a_version_count_as_that_version(pick: Pick, version: str) -> None:
    assert pick(toolchain={"triton": version}).chosen.id == "hopper"


def test_without_triton_nothing_fits_and_every_reason_is_listed(pick: Pick) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        pick(toolchain={"torch": "2.13.0"})
    assert "row-scale: no variant of row-scale fits sm_90" in str(caught.value)
    assert "portable: needs triton >=3.6, and none is installed" in str(caught.value)
    assert "hopper: needs triton >=3.6,<3.8, and none is installed" in str(caught.value)


def test_the_definitions_own_limits_hold_for_every_variant(pick: Pick) -> None:
    with pytest.raises(Unsatisfiable, match="the definition asks for `cols >= 1`"):
        pick(axes={"rows": 8, "cols": 0}, dtypes=BF16)
    with pytest.raises(Unsatisfiable, match="takes T in float32, bfloat16, not in float16"):
        pick(axes={"rows": 8, "cols": 8}, dtypes={"T": "float16"})


def test_constraints_may_name_scalars_and_see_their_defaults(pick: Pick, package: Package) -> None:
    package.edit("skill.toml", '"cols % 8 == 0"', '"factor > 1"')
    assert pick(axes={"rows": 1, "cols": 8}, dtypes=BF16).chosen.id == "hopper"
    assert (
        pick(axes={"rows": 1, "cols": 8}, dtypes=BF16, scalars={"factor": 0.5}).chosen.id
        == "portable"
    )


def test_a_malformed_range_is_the_packages_fault(pick: Pick, package: Package) -> None:
    package.edit("skill.toml", ">=3.6,<3.8", "about 3.6")
    with pytest.raises(InvalidPackage, match=r"about 3\.6"):
        pick()


def test_an_unknown_definition_is_not_found(package: Package) -> None:
    with pytest.raises(NotFound, match="did you mean row-scale"):
        resolve(package.load(), "row-scal", "sm_90", TOOLCHAIN)


# --- evidence ---------------------------------------------------------------------------------


def large(package: Package) -> Workload:
    return next(w for w in package.load().manifest.workload if w.name == "large")


def test_what_was_measured_faster_on_the_chip_beats_the_preference(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    evidence = (make_trace("portable", latency_ms=1.0), make_trace("hopper", latency_ms=2.0))
    found = pick(workload=large(package), evidence=evidence)
    assert found.chosen.id == "portable"
    assert found.reason == "measured 1 ms, hopper 2 ms"
    assert reasons(found)["hopper"] == "fits, but was measured at 2 ms, portable at 1 ms"


def test_evidence_from_another_chip_decides_nothing(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    evidence = (
        make_trace("portable", latency_ms=1.0, arch="sm_100"),
        make_trace("hopper", latency_ms=2.0, arch="sm_100"),
    )
    assert pick(workload=large(package), evidence=evidence).chosen.id == "hopper"


def test_a_variant_measured_alone_does_not_beat_the_preferred_one(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    assert pick(workload=large(package), evidence=(make_trace("portable"),)).chosen.id == "hopper"


def test_the_newest_measurement_counts_and_a_later_verification_leaves_it(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    evidence = (
        make_trace("portable", latency_ms=3.0, day=2),
        make_trace("portable", latency_ms=1.0, day=1),
        make_trace("hopper", latency_ms=2.0, day=1),
        make_trace("hopper", latency_ms=None, day=3),
    )
    assert pick(workload=large(package), evidence=evidence).chosen.id == "hopper"


def test_a_shape_never_measured_is_decided_by_the_geometric_mean_over_common_shapes(
    pick: Pick, make_trace: MakeTrace
) -> None:
    # means: portable sqrt(1 * 4) = 2, hopper sqrt(3 * 3) = 3; the third shape was measured with one only
    evidence = (
        make_trace("portable", "large", 1.0),
        make_trace("portable", "tiny", 4.0),
        make_trace("portable", "empty", 100.0),
        make_trace("hopper", "large", 3.0),
        make_trace("hopper", "tiny", 3.0),
    )
    found = pick(axes={"rows": 77, "cols": 64}, dtypes=BF16, evidence=evidence)
    assert found.chosen.id == "portable"
    assert found.reason == "measured 2 ms, hopper 3 ms"


def test_the_calls_own_shape_comes_before_the_mean(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    evidence = (
        make_trace("portable", "large", 5.0),
        make_trace("portable", "tiny", 0.1),
        make_trace("hopper", "large", 4.0),
        make_trace("hopper", "tiny", 9.0),
    )
    assert pick(workload=large(package), evidence=evidence).chosen.id == "hopper"


def test_a_variant_judged_wrong_here_on_this_shape_is_not_picked(
    pick: Pick, package: Package, make_trace: MakeTrace
) -> None:
    wrong = make_trace("hopper", status="INCORRECT_NUMERICAL")
    found = pick(workload=large(package), evidence=(wrong,))
    assert found.chosen.id == "portable"
    assert (
        reasons(found)["hopper"]
        == "was judged INCORRECT_NUMERICAL here on this shape on 2026-01-02"
    )
    assert (
        pick(workload=large(package), toolchain={"triton": "3.7.0"}, evidence=(wrong,)).chosen.id
        == "hopper"
    )
    mended = make_trace("hopper", day=2)
    assert pick(workload=large(package), evidence=(wrong, mended)).chosen.id == "hopper"


def test_by_default_the_skills_own_evidence_decides(
    package: Package, make_trace: MakeTrace
) -> None:
    from kernel_skills.registry.evidence import home_evidence, own_evidence

    skill = package.load()
    own_evidence(skill).append(make_trace("portable", latency_ms=1.0))
    home_evidence(skill.name).append(make_trace("hopper", latency_ms=2.0))
    assert resolve(skill, "row-scale", "h200", TOOLCHAIN, large(package)).chosen.id == "portable"


def test_a_shape_is_the_same_whatever_the_order_and_with_defaults_left_out(
    package: Package,
) -> None:
    definition = package.load().manifest.definition[0]
    one = shape_of(definition, {"rows": 1, "cols": 2}, BF16)
    other = shape_of(definition, {"cols": 2, "rows": 1}, BF16, {"factor": 2.0})
    assert one.key == other.key
    assert one.key != shape_of(definition, {"rows": 1, "cols": 2}, BF16, {"factor": 3.0}).key
