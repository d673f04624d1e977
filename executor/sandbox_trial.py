"""A process that confines itself as a worker does, a layer left out if asked, computes, and says which files it has open.

`skills doctor` starts it where a worker does not compute, to name what was denied. It runs no foreign code.

    python -m kernel_skills.executor.sandbox_trial cuda:0 [landlock|seccomp|user|limits]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from kernel_skills.executor.sandbox import Confinement, confine
from kernel_skills.executor.sandbox_choice import SandboxSettings
from kernel_skills.executor.sandbox_roots import gpu_nodes, plain_nodes
from kernel_skills.executor.worker_environment import private_places

Layer = Literal["landlock", "seccomp", "user", "limits"]
LAYERS: tuple[Layer, ...] = get_args(Layer)


def without(confinement: Confinement, layer: str) -> Confinement:
    """Return the confinement with one layer left out; the whole of it for a layer that there is not."""
    changed: dict[str, dict[str, object]] = {
        "landlock": {"landlock_abi": 0},
        "seccomp": {"seccomp": False},
        "user": {"uid": os.getuid()},
        "limits": {"address_bytes": None, "file_bytes": None},
    }
    return confinement.model_copy(update=changed.get(layer, {}))


def outside(confinement: Confinement) -> Iterator[str]:
    """Yield the files that this process has open or mapped and that landlock would have denied."""
    allowed = [
        *confinement.read, *confinement.write, *plain_nodes(), Path("/dev/shm"),
        *(gpu_nodes() if confinement.gpu else ()),
    ]  # fmt: skip
    for path in sorted(set(_open_files())):
        if not any(Path(path).is_relative_to(root) for root in allowed):
            yield path


def _open_files() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        # the first three are whatever the person's terminal is
        if int(entry.name) > 2:
            # the listing's own descriptor is closed already
            with contextlib.suppress(OSError):
                yield from (str(target) for target in [entry.readlink()] if target.is_absolute())
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            yield words[5]


def main(arguments: list[str]) -> None:
    place, layer = arguments[0], "".join(arguments[1:])
    # not below a folder of ours alone: a worker of another user must reach it
    with tempfile.TemporaryDirectory(prefix="kernel-skills-trial-") as scratch:
        folder = Path(scratch) / "worker"
        folder.mkdir()
        Path(scratch).chmod(0o711)
        settings = SandboxSettings("embedded", Path(scratch))
        confinement = without(settings.confinement("candidate", True, folder, folder), layer)
        if child := os.fork():
            os.waitpid(child, 0)
            return
        os.environ.update(private_places(folder, folder))
        confine(confinement, [])
        # after the sandbox, as a worker's driver is started after it
        from kernel_skills.executor.device_probe import computes
        from kernel_skills.executor.failure import describe_failure

        try:
            answer: dict[str, object] = {"ok": computes(place)}
        except Exception as error:  # noqa: BLE001 - whatever a driver raises is the answer
            answer = describe_failure(error)
        print(json.dumps({**answer, "outside": list(outside(confinement))}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
