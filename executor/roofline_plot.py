"""A roofline as a picture: what the chip allows at each arithmetic intensity, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.targets import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
INCHES = (9.0, 6.0)
DOTS_PER_INCH = 144

CANDIDATE_COLOUR = "#0b5cad"
BASELINE_COLOUR = "#8a5a00"
ROOF_COLOURS = ("#333333", "#7a3b8f", "#2f7d4f", "#a03030")
"""One per dtype."""

LABEL_POINTS = 8.0
MARK_PIXELS = 8.0
"""Half the width of a point's mark, with its edge."""

_MARKERS = "os^Dv<>pP*X"


@dataclass(frozen=True)
class RooflinePoint:
    """One measured speed.

    Attributes:
        workload: label of the point.
        series: what was timed: a variant, or a baseline's name. One marker per series.
        intensity: FLOP per byte through device memory.
        tflops: TFLOP/s reached.
        dtype: key of `Target.peak_tflops` whose roof bounds the point.
        baseline: drawn hollow.
    """

    workload: str
    series: str
    intensity: float
    tflops: float
    dtype: str = "bfloat16"
    baseline: bool = False


def check_picture(path: Path) -> None:
    """Raise UsageError for a file name that `draw_roofline` would refuse, before the work that it is to show."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot draw {path.name!r}; end the name in {' or '.join(SUFFIXES)}")


def draw_roofline(points: Sequence[RooflinePoint], target: Target, path: Path) -> None:
    """Write a log-log roofline of the target with the points on it.

    Args:
        points: at least one; intensity and speed above zero.
        target: gives the roofs: data sheet dashed, measured solid.
        path: `.png` or `.svg`.

    Raises:
        UsageError: another suffix, matplotlib is missing, or nothing can be drawn.
    """
    check_picture(path)
    drawable = [point for point in points if point.intensity > 0 and point.tflops > 0]
    if not drawable:
        raise UsageError(
            "no measured workload with a FLOP count to draw; give the definition `flops`"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(
            f"drawing needs {error.name}; pip install 'kernel-skills[plot]'"
        ) from error

    # labels are placed in pixels, so the figure has its final resolution from the start
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    roofs = _roofs(target, sorted({point.dtype for point in drawable}))
    _set_axes(axes, drawable, roofs, target)
    dtypes = list(dict.fromkeys(roof.dtype for roof in roofs))
    for roof in roofs:
        _draw_roof(axes, roof, ROOF_COLOURS[dtypes.index(roof.dtype) % len(ROOF_COLOURS)])
    _draw_points(axes, drawable)
    figure.legend(loc="outside lower center", ncols=2, fontsize=LABEL_POINTS, frameon=False)
    figure.canvas.draw()
    _label_points(axes, drawable, roofs)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata=_without_date(path))


@dataclass(frozen=True)
class _Roof:
    """min(bandwidth * intensity, compute): TFLOP/s."""

    name: str
    dtype: str
    gbps: float
    tflops: float
    measured: bool

    @property
    def ridge(self) -> float:
        """Intensity in FLOP per byte above which compute binds."""
        return self.tflops * 1e3 / self.gbps

    def at(self, intensity: float) -> float:
        return min(self.gbps * intensity / 1e3, self.tflops)


def _roofs(target: Target, dtypes: Sequence[str]) -> list[_Roof]:
    roofs = []
    for dtype in dtypes:
        key = dtype if dtype in target.peak_tflops else f"vector-{dtype}"
        peak, measured = target.peak_tflops.get(key), target.measured_tflops.get(key)
        if peak is None:
            continue
        roofs.append(_Roof("data sheet", key, target.peak_gbps.value, peak.value, False))
        if measured is not None:
            roofs.append(_Roof("measured", key, target.gbps.value, measured.value, True))
        elif target.measured_gbps is not None:
            name = "measured bandwidth, data-sheet compute"
            roofs.append(_Roof(name, key, target.gbps.value, peak.value, True))
    if not roofs:
        known = ", ".join(sorted(target.peak_tflops))
        raise UsageError(
            f"target {target.name} has no rate for {', '.join(dtypes)}; known: {known}"
        )
    return roofs


def _set_axes(
    axes: Axes, points: Sequence[RooflinePoint], roofs: Sequence[_Roof], target: Target
) -> None:
    intensities = [point.intensity for point in points] + [roof.ridge for roof in roofs]
    left, right = min(intensities) / 4, max(intensities) * 6
    top = max(roof.tflops for roof in roofs) * 2.5
    bottom = min([point.tflops for point in points] + [roof.at(left) for roof in roofs]) / 2
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    axes.set_xlabel("arithmetic intensity (FLOP per byte of device memory)")
    axes.set_ylabel("speed (TFLOP/s)")
    axes.set_title(f"Roofline of {target.title} ({target.arch})", loc="left")
    axes.xaxis.set_major_formatter(_plain_number)
    axes.yaxis.set_major_formatter(_plain_number)
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plain_number(value: float, _: float) -> str:
    return f"{value:g}" if 1e-4 <= value < 1e6 else f"{value:.0e}"


def _draw_roof(axes: Axes, roof: _Roof, colour: str) -> None:
    left, right = axes.get_xlim()
    x = [left, roof.ridge, right]
    axes.plot(
        x,
        [roof.at(value) for value in x],
        color=colour,
        linestyle="-" if roof.measured else "--",
        linewidth=1.6 if roof.measured else 1.1,
        label=f"{roof.name}, {roof.dtype}: {roof.tflops:.0f} TFLOP/s, {roof.gbps:.0f} GB/s",
        zorder=1,
    )


def _draw_points(axes: Axes, points: Sequence[RooflinePoint]) -> None:
    series = list(dict.fromkeys((point.series, point.baseline) for point in points))
    for index, (name, baseline) in enumerate(series):
        own = [point for point in points if (point.series, point.baseline) == (name, baseline)]
        colour = BASELINE_COLOUR if baseline else CANDIDATE_COLOUR
        axes.scatter(
            [point.intensity for point in own],
            [point.tflops for point in own],
            marker=_MARKERS[index % len(_MARKERS)],
            s=46,
            facecolors="white" if baseline else colour,
            edgecolors=colour,
            linewidths=1.3,
            zorder=3 if baseline else 3.5,
            label=f"{name} (baseline)" if baseline else name,
        )


def _label_points(axes: Axes, points: Sequence[RooflinePoint], roofs: Sequence[_Roof]) -> None:
    """Write each workload's name once, by its fastest candidate, where it covers no mark and no other label."""
    named: dict[str, RooflinePoint] = {}
    for point in sorted(points, key=lambda point: (point.baseline, -point.tflops)):
        named.setdefault(point.workload, point)
    taken = [_box_round(axes, point.intensity, point.tflops, MARK_PIXELS) for point in points]
    taken += _boxes_along(axes, roofs)
    for point in sorted(named.values(), key=lambda point: -point.tflops):
        taken.append(_place(axes, point, taken))


_Box = tuple[float, float, float, float]
"""Left, bottom, right, top in pixels."""


def _box_round(axes: Axes, intensity: float, tflops: float, half: float) -> _Box:
    x, y = axes.transData.transform((intensity, tflops))
    return (x - half, y - half, x + half, y + half)


def _boxes_along(axes: Axes, roofs: Sequence[_Roof], steps: int = 150) -> list[_Box]:
    """Return small boxes on the roofs, so that labels keep off the lines."""
    left, right = axes.get_xlim()
    places = [left * (right / left) ** (step / steps) for step in range(steps + 1)]
    return [_box_round(axes, x, roof.at(x), 3.0) for roof in roofs for x in places]


def _place(axes: Axes, point: RooflinePoint, taken: Sequence[_Box]) -> _Box:
    """Add a label at the best free place, with a line from it to its point."""
    figure = axes.get_figure()
    assert figure is not None
    renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    label = axes.annotate(
        f"{point.workload}: {point.tflops:.3g} TFLOP/s",
        (point.intensity, point.tflops),
        xytext=(0, 0),
        textcoords="offset pixels",
        fontsize=LABEL_POINTS,
        color=BASELINE_COLOUR if point.baseline else CANDIDATE_COLOUR,
        arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.6, "shrinkA": 0},
        zorder=4,
    )
    size = label.get_window_extent(renderer)
    x, y = axes.transData.transform((point.intensity, point.tflops))
    frame = axes.get_window_extent(renderer)
    inside = (frame.x0, frame.y0, frame.x1, frame.y1)
    best = min(
        _offsets(size.width, size.height),
        key=lambda offset: _cost((x, y), offset, (size.width, size.height), taken, inside),
    )
    label.set_position(best)
    left, bottom = x + best[0], y + best[1]
    return (left, bottom, left + size.width, bottom + size.height)


def _offsets(width: float, height: float) -> list[tuple[float, float]]:
    """Return places for a label's lower left corner relative to its point, in pixels, in rings outwards."""
    gap = 2 * MARK_PIXELS
    places = []
    for ring in range(14):
        rise = ring * height * 0.75
        for left in (gap + 2 * rise, -gap - 2 * rise - width):
            places += [(left, rise - height / 2), (left, -rise - height / 2)]
        places += [(-width / 2, gap + rise), (-width / 2, -gap - rise - height)]
    return places


def _cost(
    point: tuple[float, float],
    offset: tuple[float, float],
    size: tuple[float, float],
    taken: Sequence[_Box],
    inside: _Box,
) -> float:
    """Weigh a place: pixels covered count most, then pixels outside the axes, then distance."""
    left, bottom = point[0] + offset[0], point[1] + offset[1]
    right, top = left + size[0], bottom + size[1]
    covered = sum(
        max(0.0, min(right, box[2]) - max(left, box[0])) * max(0.0, min(top, box[3]) - max(bottom, box[1]))
        for box in taken
    )  # fmt: skip
    outside = (
        max(0.0, inside[0] - left) + max(0.0, right - inside[2])
        + max(0.0, inside[1] - bottom) + max(0.0, top - inside[3])
    )  # fmt: skip
    middle = (left + size[0] / 2 - point[0], bottom + size[1] / 2 - point[1])
    return covered * 10 + outside * 20 + math.hypot(middle[0] / 4, middle[1])


def _without_date(path: Path) -> dict[str, Any]:
    """Keep the time of drawing out of the file, so that the same points give the same file."""
    return {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
