"""`doctor`, on this machine as it is."""

from __future__ import annotations

import json
from pathlib import Path

from kernel_skills.executor.doctor import Check, Diagnosis

from .conftest import Skills


def test_doctor_names_every_part_and_the_mend_of_what_is_missing(
    skills: Skills, apart: Path
) -> None:
    shown = skills("doctor", "--json")
    diagnosis = json.loads(shown.out)
    checks = {check["name"]: check for check in diagnosis["checks"]}
    parts = {
        "torch",
        "triton",
        "driver",
        "cross-compile",
        "interpreter",
        "C compiler",
        "ncu",
        "data home",
    }
    sandbox = {
        "sandbox: in force",
        "sandbox: landlock",
        "sandbox: seccomp",
        "sandbox: user namespaces",
        "sandbox: bubblewrap",
    }
    assert parts | sandbox <= checks.keys()
    assert any(name.startswith("GPU") for name in checks)
    assert all(check["mend"] for check in checks.values() if check["status"] != "ok")
    assert checks["cross-compile"]["status"] == "ok", checks["cross-compile"]
    assert checks["interpreter"]["status"] == "ok", checks["interpreter"]
    assert checks["data home"]["detail"] == str(apart / "home")
    assert shown.code == (0 if diagnosis["able"] else 1)


def test_a_missing_extra_is_no_failure_and_a_broken_need_is() -> None:
    extra = Check(name="extra: ray", status="missing", mend="pip install")
    need = Check(name="torch", status="broken", mend="pip install", needed=True)
    assert Diagnosis(checks=(extra,)).able
    assert not Diagnosis(checks=(extra, need)).able


def test_an_unwritable_data_home_is_broken(tmp_path: Path) -> None:
    from kernel_skills.executor.doctor import _data_home

    (tmp_path / "file").write_text("in the way")
    check = _data_home(tmp_path / "file" / "home")
    assert (check.status, check.needed) == ("broken", True)
    assert "KERNEL_SKILLS_HOME" in check.mend
