"""What the process at the terminal does not do while it runs a skill, whatever its workers do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernel_skills.cli.main as cli_main

IMPORT_ROOT = Path(cli_main.__file__).resolve().parents[1] / ".importroot"
SCRIPT = """\
import json, sys
from pathlib import Path
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.discovery import load_skill
from kernel_skills.registry.run import RunOptions, run_skill
from kernel_skills.registry.scaffold import new_skill

made = new_skill("silu", Path(sys.argv[1]))
options = RunOptions(workload="odd-width")
run = run_skill(load_skill(made.folder, "--skills-dir"), find_target("h100"), options)
kernels = [k.kernel for item in run.runs for j in item.judgement.judged for k in j.evaluation.kernels]
print(json.dumps({"accepted": run.accepted, "kernels": kernels, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("person")


@pytest.fixture(scope="module")
def told(place: Path) -> dict[str, Any]:
    """One real run, compiled and verified, by a person with an empty home and temporary folder."""
    for name in ("home", "data", "temporary", "skills", "here"):
        (place / name).mkdir()
    own = {"HOME": "home", "KERNEL_SKILLS_HOME": "data", "TMPDIR": "temporary"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(place / "skills")],
        capture_output=True, text=True, timeout=200, check=False, cwd=place / "here",
        env={
            **kept, "PYTHONPATH": str(IMPORT_ROOT),
            **{name: str(place / folder) for name, folder in own.items()},
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["accepted"] and answer["kernels"], "nothing was judged, so nothing is proved"
    return answer


def test_it_imports_neither_torch_nor_triton(told: dict[str, Any]) -> None:
    assert {"torch", "triton", "numpy"}.isdisjoint(told["modules"])


@pytest.mark.usefixtures("told")
def test_nothing_is_written_outside_the_data_home_and_the_temporary_folder(place: Path) -> None:
    assert list((place / "home").rglob("*")) == []
    assert list((place / "here").rglob("*")) == []
    assert [path.name for path in (place / "data").iterdir()] == ["evidence"]


@pytest.mark.usefixtures("told")
def test_no_file_of_a_worker_outlives_the_run(place: Path) -> None:
    left = [path for path in (place / "temporary").rglob("*") if path.is_file()]
    assert left == []
