"""The skills as a graded course: lower levels first, each skill after what it builds on.

The data is in the manifests: `level` and `prerequisites`. A prerequisite that is unknown, stands on a higher level, or
leads back to the skill is a fault of the package (`prerequisite_faults`); a course is made of what is sound all the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.models import Record
from kernel_skills.registry.models import Kind, Manifest, Pattern, Skill


class Step(Record):
    """One skill of the course."""

    name: str
    version: str
    kind: Kind
    level: int
    patterns: tuple[Pattern, ...]
    summary: str
    prerequisites: tuple[str, ...]
    """Direct ones, as the manifest has them."""


class Course(Record):
    """Skills in the order in which to read them."""

    steps: tuple[Step, ...]
    faults: tuple[str, ...] = ()
    """What is wrong with the prerequisites, a line each; steps on a cycle come last."""

    def on_level(self, level: int) -> Course:
        """Return the steps of one level."""
        return self._with(step for step in self.steps if step.level == level)

    def leading_to(self, name: str) -> Course:
        """Return a skill and everything it builds on, near or far.

        Raises:
            NotFound: no such skill; close names are offered.
        """
        known = {step.name: step for step in self.steps}
        if name not in known:
            raise NotFound.named("skill", name, known)
        needed = _reachable(name, {n: step.prerequisites for n, step in known.items()})
        return self._with(step for step in self.steps if step.name in needed)

    def _with(self, steps: Iterable[Step]) -> Course:
        return self.model_copy(update={"steps": tuple(steps)})


def course_of(skills: Iterable[Skill]) -> Course:
    """Return the course that the skills make."""
    manifests = {skill.name: skill.manifest for skill in skills}
    faults = [
        f"{name}: {message}"
        for name, manifest in sorted(manifests.items())
        for message, _ in prerequisite_faults(manifest, manifests)
    ]
    return Course(
        steps=tuple(_step(manifests[name]) for name in _ordered(manifests)), faults=tuple(faults)
    )


def prerequisite_faults(
    manifest: Manifest, others: Mapping[str, Manifest]
) -> Iterator[tuple[str, str]]:
    """Yield (what is wrong, mend) for each fault of a skill's own prerequisites.

    Args:
        others: by name, every skill that can be found of those it builds on, near or far; itself may be among them.
    """
    for name in dict.fromkeys(manifest.prerequisites):
        if name == manifest.name:
            yield "the skill asks for itself", "take it out"
        elif name not in others:
            known = others.keys() - {manifest.name}
            yield str(NotFound.named("skill", name, known)), "name a skill that can be found"
        elif others[name].level > manifest.level:
            message = (
                f"prerequisite {name!r} is on level {others[name].level}, above {manifest.level}"
            )
            yield message, "a course climbs: raise this level, or lower that one"
    circle = _way_back(manifest, others)
    if circle:
        yield f"prerequisites go in a circle: {' -> '.join(circle)}", "take one of them out"


def mermaid_of(course: Course) -> str:
    """Return the course as a Mermaid flow chart: a box for each level, an arrow from each prerequisite.

    Boxes of patterns are round, those of hardware have double sides, those of applications slant.
    """
    lines = ["flowchart LR"]
    for level in sorted({step.level for step in course.steps}):
        lines.append(f'  subgraph level-{level}["level {level}"]')
        lines += [f"    {_box(step)}" for step in course.steps if step.level == level]
        lines.append("  end")
    shown = {step.name for step in course.steps}
    lines += [
        f"  {_node(name)} --> {_node(step.name)}"
        for step in course.steps
        for name in step.prerequisites
        if name in shown
    ]
    return "\n".join(lines) + "\n"


# --- order ------------------------------------------------------------------------------------


def _ordered(manifests: Mapping[str, Manifest]) -> list[str]:
    """Return the names in topological order, of those that are ready the lowest level and first name first."""
    waiting = {
        name: {p for p in manifest.prerequisites if p in manifests and p != name}
        for name, manifest in manifests.items()
    }
    ready = [(manifests[name].level, name) for name, needed in waiting.items() if not needed]
    heapq.heapify(ready)
    ordered: list[str] = []
    while ready:
        _, done = heapq.heappop(ready)
        ordered.append(done)
        for name, needed in waiting.items():
            if done in needed:
                needed.remove(done)
                if not needed:
                    heapq.heappush(ready, (manifests[name].level, name))
    left = waiting.keys() - set(ordered)
    return [*ordered, *sorted(left, key=lambda name: (manifests[name].level, name))]


def _reachable(name: str, prerequisites: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the skill and all that it builds on, as far as it is known."""
    found, pending = {name}, [name]
    while pending:
        for other in prerequisites.get(pending.pop(), ()):
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _way_back(manifest: Manifest, others: Mapping[str, Manifest]) -> tuple[str, ...]:
    """Return the shortest circle of two or more skills through this one, from itself to itself; empty: there is none."""
    ways: list[tuple[str, ...]] = [
        (manifest.name, name) for name in manifest.prerequisites if name != manifest.name
    ]
    seen: set[str] = set()
    for way in ways:  # grows while it is walked: breadth first
        last = way[-1]
        if last == manifest.name:
            return way
        if last not in seen and last in others:
            seen.add(last)
            ways += [(*way, name) for name in others[last].prerequisites]
    return ()


# --- words ------------------------------------------------------------------------------------


def _step(manifest: Manifest) -> Step:
    return Step(
        name=manifest.name,
        version=str(manifest.version),
        kind=manifest.kind,
        level=manifest.level,
        patterns=manifest.patterns,
        summary=manifest.summary,
        prerequisites=manifest.prerequisites,
    )


def _node(name: str) -> str:
    # a prefix, because `end` and `graph` are words of Mermaid
    return f"skill-{name}"


def _box(step: Step) -> str:
    opening, closing = {
        "operator": ("[", "]"),
        "application": ("[/", "/]"),
        "pattern": ("([", "])"),
        "hardware": ("[[", "]]"),
    }[step.kind]
    return f'{_node(step.name)}{opening}"{step.name}"{closing}'
