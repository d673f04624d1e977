from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel_skills.executor.errors import InvalidPackage, KernelSkillsError
from kernel_skills.registry.shape import Shape
from kernel_skills.registry.tuned import Tuned, TunedStore

if TYPE_CHECKING:
    from tests.registry.conftest import StartPython

DIGEST = "ab" * 32
SHAPE = Shape(axes={"rows": 4, "cols": 8}, dtypes={"T": "bfloat16"}, scalars={"causal": True})
TOOLCHAIN = {"torch": "2.13.0", "triton": "3.6.0", "cuda": "12.8"}


def tuned(block: int = 512, **changes: Any) -> Tuned:
    fields = {
        "shape": SHAPE,
        "arch": "sm_90",
        "toolchain": TOOLCHAIN,
        "config": {"BLOCK": block},
        "latency_ms": 0.5,
    }
    return Tuned(**{**fields, **changes})


def test_a_result_is_found_for_its_shape_chip_and_toolchain_only(private_home: Path) -> None:
    store = TunedStore()
    store.put(DIGEST, "row-scale", tuned())
    same = Shape(axes={"cols": 8, "rows": 4}, dtypes={"T": "bfloat16"}, scalars={"causal": True})
    found = store.get(DIGEST, "row-scale", same, "sm_90", {"triton": "3.6.0", "torch": "2.13.0"})
    assert found is not None and found.config == {"BLOCK": 512}
    for digest, definition, shape, arch, toolchain in (
        ("cd" * 32, "row-scale", SHAPE, "sm_90", TOOLCHAIN),
        ("ab" * 8 + "cd" * 24, "row-scale", SHAPE, "sm_90", TOOLCHAIN),
        (DIGEST, "other", SHAPE, "sm_90", TOOLCHAIN),
        (
            DIGEST,
            "row-scale",
            SHAPE.model_copy(update={"dtypes": {"T": "float16"}}),
            "sm_90",
            TOOLCHAIN,
        ),
        (DIGEST, "row-scale", SHAPE, "sm_100", TOOLCHAIN),
        (DIGEST, "row-scale", SHAPE, "sm_90", {**TOOLCHAIN, "triton": "3.7.0"}),
    ):
        assert store.get(digest, definition, shape, arch, toolchain) is None
    assert list((private_home / "tuned").rglob("*.json"))


def test_a_new_result_replaces_the_old_one_and_leaves_the_others(tmp_path: Path) -> None:
    store = TunedStore(tmp_path)
    store.put(DIGEST, "row-scale", tuned(512))
    store.put(DIGEST, "row-scale", tuned(256, arch="sm_80"))
    store.put(DIGEST, "row-scale", tuned(1024))
    assert sorted(result.config["BLOCK"] for result in store.results(DIGEST, "row-scale")) == [
        256,
        1024,
    ]


def test_the_file_is_readable_json(tmp_path: Path) -> None:
    TunedStore(tmp_path).put(DIGEST, "row-scale", tuned())
    data = json.loads(next(tmp_path.rglob("*.json")).read_text())
    assert data["variant_digest"] == DIGEST
    assert data["results"][0]["config"] == {"BLOCK": 512}
    assert data["results"][0]["toolchain"] == {"torch": "2.13.0", "triton": "3.6.0"}


def test_a_damaged_file_is_named_with_the_mend_and_left_alone(tmp_path: Path) -> None:
    store = TunedStore(tmp_path)
    store.put(DIGEST, "row-scale", tuned())
    file = next(tmp_path.rglob("*.json"))
    file.write_text("{")
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.get(DIGEST, "row-scale", SHAPE, "sm_90", TOOLCHAIN),
        lambda: store.put(DIGEST, "row-scale", tuned()),
    )
    for use in uses:
        with pytest.raises(InvalidPackage, match="delete it and tune again"):
            use()
    assert file.read_text() == "{"


WRITER = """
import resource, sys
from pathlib import Path
from kernel_skills.executor.errors import KernelSkillsError
from kernel_skills.registry.tuned import Tuned, TunedStore

folder, digest, text, first, limit = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
result = Tuned.model_validate_json(text)
for number in range(int(first), int(first) + 25):
    shape = result.shape.model_copy(update={"axes": {"rows": number, "cols": 8}})
    try:
        TunedStore(Path(folder)).put(digest, "row-scale", result.model_copy(update={"shape": shape}))
    except KernelSkillsError as error:
        print(error)
"""


def test_two_writers_lose_nothing(tmp_path: Path, start_python: StartPython) -> None:
    text = tuned().model_dump_json()
    writers = [
        start_python(WRITER, str(tmp_path), DIGEST, text, first, "0") for first in ("0", "100")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    assert len(TunedStore(tmp_path).results(DIGEST, "row-scale")) == 50


def test_a_full_disk_leaves_the_old_file_whole_and_no_rubbish(
    tmp_path: Path, start_python: StartPython
) -> None:
    store = TunedStore(tmp_path)
    store.put(DIGEST, "row-scale", tuned())
    file = next(tmp_path.rglob("*.json"))
    before = file.read_bytes()
    writer = start_python(
        WRITER, str(tmp_path), DIGEST, tuned().model_dump_json(), "100", str(len(before))
    )
    said, errors = writer.communicate(timeout=60)
    assert "tuning result not kept" in said, errors
    assert file.read_bytes() == before
    assert sorted(path.suffix for path in file.parent.iterdir()) == [".json", ".lock"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tuned").write_text("a file")
    with pytest.raises(KernelSkillsError, match="not kept"):
        TunedStore(tmp_path / "tuned").put(DIGEST, "row-scale", tuned())
