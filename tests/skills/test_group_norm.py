"""The judge accepts the group norm kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_skills.executor.models import Scalar
from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.models import Skill

from .conftest import (
    Mutation,
    assert_accepted,
    assert_mutation_is_rejected,
    filled,
    portable,
    statuses,
    verdicts,
)

SKILL = "group-norm"
FORWARD, LAYOUT = "kernels/forward.py", "kernels/layout.py"
PLANES, PIXELS, JOIN = "kernels/planes.py", "kernels/pixels.py", "kernels/join.py"
PLANES_BACK, PIXELS_BACK = "kernels/planes_backward.py", "kernels/pixels_backward.py"
TOTAL = "return total, tl.sum(squares + count * away * away, axis=0)"

MUTATIONS: Mapping[str, Mutation] = {
    "masked lanes count as deviations": (
        "group-norm", "odd-image", PLANES, "tl.where(inside, x - new_mean[:, None], 0.0)", "x - new_mean[:, None]",
    ),
    "the variance is a difference of squares": (
        "group-norm", "large-mean", PLANES, TOTAL,
        "return total, tl.sum(squares + count * mean * mean, axis=0) - size * total * total",
    ),
    "the variance of split groups is a difference of squares": (
        "group-norm", "large-mean-split", PLANES, "tl.sum(squares + count * away * away, axis=0) / length + eps",
        "tl.sum(squares + count * means * means, axis=0) / length - mean * mean + eps",
    ),
    "the distance between channels is left out": (
        "group-norm", "channels-last", PIXELS, "tl.sum(own + count * away * away, axis=0)", "tl.sum(own, axis=0)",
    ),
    "eps lies outside the root": (
        "group-norm", "large-eps", PLANES, "rstd = _inverse_root(squares / length + eps)",
        "rstd = 1.0 / (tl.sqrt(squares / length) + eps)",
    ),
    "the last part of a group counts as full": (
        "group-norm", "large-mean-split", PLANES,
        "count = tl.minimum(tl.maximum(length - split * chunk, 0), chunk).to(tl.float32)",
        "count = (chunk + 0 * split).to(tl.float32)",
    ),
    "weights are those of the first group": (
        "group-norm", "small-image", PLANES, "    weight_ptr += inner * each\n", "",
    ),
    "the second wave reads the first one's samples": (
        "group-norm", "several-waves-channels-last", PIXELS, "sample = (first + row // rows).to(tl.int64)",
        "sample = (row // rows).to(tl.int64)",
    ),
    "every layout is taken for contiguous": (
        "group-norm", "padded", LAYOUT, "return x if _is_planes(x) else x.contiguous()", "return x",
    ),
    "dx forgets the mean of the gradient": (
        "group-norm-backward", "small-image", PLANES_BACK, "(dy * weight - plain -", "(dy * weight -",
    ),
    "dx forgets the part along the group": (
        "group-norm-backward", "channels-last", PIXELS_BACK, " - ((x - mean) * rstd) * product)", ")",
    ),
    "the means leave out the weight": (
        "group-norm-backward", "odd-image", JOIN, "mean_product += product * weight", "mean_product += product",
    ),
    "dweight leaves out the last sample": (
        "group-norm-backward", "odd-image", JOIN, "mask = (sample < batch)[:, None]", "mask = (sample < batch - 1)[:, None]",
    ),
    "only the first part of a channel is summed": (
        "group-norm-backward", "split-channels", JOIN, "mask = (split < splits) & channel_mask[None, :]",
        "mask = (split < 1) & channel_mask[None, :]",
    ),
    "the gradient is read with the layout of x": (
        "group-norm-backward", "layouts-differ", "kernels/backward.py",
        "x, dy = in_layout(x, last), in_layout(dy, last)", "x = in_layout(x, last)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


@pytest.mark.parametrize("definition", ["group-norm", "group-norm-backward"])
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize(
    "config", [{"WAVE_MB": 0}, {"BLOCK": 1024, "WARPS": 4, "WAVE_MB": 4096, "PROGRAMS_PER_SM": 8}]
)
def test_the_other_plans_are_right_too(
    pool: LocalPool, skill: Skill, config: Mapping[str, Scalar]
) -> None:
    names = ("large-mean-split", "large-mean", "large-mean-channels-last")
    judgement = verdicts(pool, skill, portable(skill, "group-norm"), *names, config=config)
    assert statuses(judgement) == {"PASSED"}


def test_the_filled_template_is_accepted(pool: LocalPool, skill: Skill) -> None:
    solution = filled(skill, "group", {"block": 1024})
    names = ("odd-image", "large-mean", "outliers", "channels-last")
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
