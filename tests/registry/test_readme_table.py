from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.trace import BaselineTiming, Trace
from kernel_skills.registry.evidence import home_evidence, own_evidence
from kernel_skills.registry.readme_table import (
    BEGIN,
    END,
    NO_EVIDENCE,
    markdown_table,
    table_rows,
    with_table,
)

if TYPE_CHECKING:
    from tests.registry.conftest import MakeTrace, Package

SECOND = """
[[workload]]
definition = "row-scale"
name = "wide"
purpose = "bench"
axes = { rows = 64, cols = 65536 }
dtypes = { T = "bfloat16" }
"""


@pytest.fixture
def two_workloads(package: Package) -> Package:
    package.edit("skill.toml", "[[template]]", f"{SECOND}\n[[template]]")
    return package


def against(trace: Trace, **ratios: float) -> Trace:
    """The Trace with baselines of these ratios."""
    baselines = tuple(BaselineTiming(name=name, ratio=ratio) for name, ratio in ratios.items())
    evaluation: Any = trace.evaluation
    performance = evaluation.performance.model_copy(update={"baselines": baselines})
    return trace.model_copy(
        update={"evaluation": evaluation.model_copy(update={"performance": performance})}
    )


def test_a_skill_without_evidence_says_so(package: Package) -> None:
    (row,) = table_rows([package.load()])
    assert (row.hardware, row.measured, row.workloads) == ("", 0, 1)
    table = markdown_table([row], package.folder.parents[1])
    assert f"| [row-scale](skills/row-scale/SKILL.md) | row-scale | {NO_EVIDENCE} |" in table


def test_every_line_has_as_many_cells_as_the_head(package: Package, make_trace: MakeTrace) -> None:
    unmeasured = table_rows([package.load()])
    own_evidence(package.load()).append(against(make_trace(), eager=2.0))
    table = markdown_table([*unmeasured, *table_rows([package.load()])])
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_least_ratio_and_the_geometric_mean_are_over_the_workloads(
    two_workloads: Package, make_trace: MakeTrace
) -> None:
    store = own_evidence(two_workloads.load())
    store.append(against(make_trace(workload="large"), eager=9.0, library=2.0, copy=0.9))
    store.append(against(make_trace(workload="wide"), eager=0.5, library=7.0, copy=0.8))
    (row,) = table_rows([two_workloads.load()])
    assert row.least_ratio == 0.5
    assert row.mean_ratio == pytest.approx(1.0)
    assert row.least_share_of_copy == 0.8
    assert row.rivals == ("eager", "library")
    assert (row.measured, row.workloads) == (2, 2)


def test_the_faster_variant_of_a_workload_counts(package: Package, make_trace: MakeTrace) -> None:
    store = own_evidence(package.load())
    store.append(against(make_trace("hopper", latency_ms=1.0), eager=3.0))
    store.append(against(make_trace("portable", latency_ms=2.0, day=2), eager=1.5))
    (row,) = table_rows([package.load()])
    assert row.least_ratio == 3.0


def test_a_later_measurement_of_a_variant_supersedes_an_earlier(
    package: Package, make_trace: MakeTrace
) -> None:
    store = own_evidence(package.load())
    store.append(against(make_trace(latency_ms=1.0, day=1), eager=3.0))
    store.append(against(make_trace(latency_ms=2.0, day=2), eager=1.5))
    (row,) = table_rows([package.load()])
    assert row.least_ratio == 1.5


def test_a_changed_kernel_or_workload_has_no_evidence(
    package: Package, make_trace: MakeTrace
) -> None:
    own_evidence(package.load()).append(against(make_trace(), eager=3.0))
    package.edit("skill.toml", "rows = 4096, cols = 4096", "rows = 4096, cols = 8192")
    assert [row.hardware for row in table_rows([package.load()])] == [""]


def test_the_data_home_does_not_count(package: Package, make_trace: MakeTrace) -> None:
    home_evidence("row-scale").append(against(make_trace(), eager=3.0))
    assert [row.hardware for row in table_rows([package.load()])] == [""]


def test_the_table_replaces_what_is_between_the_markers() -> None:
    page = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    assert with_table(page, "new\n", "README.md") == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(page: str) -> None:
    with pytest.raises(UsageError, match=r"README\.md"):
        with_table(page, "new\n", "README.md")
