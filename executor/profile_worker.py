"""The process that a profiler watches: draw a Workload's inputs, warm up, make one call between start and stop.

    python -m kernel_skills.executor.profile_worker REQUEST.json

It runs foreign code. Its output is a log for people; the counters come from the profiler.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.profile import ProfileRequest
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.seeds import derive_seed

_WARM_UP_CALLS = 3
"""The first compiles; the others let an autotuner settle and the allocator fill."""


def main(arguments: list[str]) -> None:
    """Make the call that the request file describes."""
    request = ProfileRequest.model_validate_json(Path(arguments[0]).read_text(encoding="utf-8"))
    on_gpu = request.place != "cpu"
    if on_gpu:
        torch.cuda.set_device(torch.device(request.place))
    reference = Reference(request.task)
    seed = derive_seed(request.seed, request.workload.uuid, "profile")
    tensors, scalars = reference.draw(request.workload, seed, request.place)
    entry = SourceTree(request.solution.sources, Path("solution")).function(
        request.solution.spec.entry_point
    )
    inputs, keywords = tuple(tensors.values()), {**scalars, **request.config}
    if not on_gpu:
        entry(*inputs, **keywords)
        return
    for _ in range(_WARM_UP_CALLS):
        entry(*inputs, **keywords)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    outputs = entry(*inputs, **keywords)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    # kept until here: freed memory must not be handed out within the watched call
    del outputs


if __name__ == "__main__":
    main(sys.argv[1:])
