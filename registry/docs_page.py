"""A page about a skill, from its manifest, notes and evidence: Markdown, or HTML made from it.

A package is other people's text. Words of the manifest are escaped; the notes stay Markdown, with raw HTML made visible
instead of active.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kernel_skills.executor.models import Definition, TensorSpec
from kernel_skills.registry.digest import root_digest
from kernel_skills.registry.figures import figures_of
from kernel_skills.registry.front_matter import NOTES_NAME, body_of
from kernel_skills.registry.jinja_templates import shipped_templates
from kernel_skills.registry.models import Skill, Variant

_MARKDOWN = re.compile(r"([\\`*_\[\]|])")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"#{1,5} ")
_CODE_SPAN = re.compile(r"(`+[^`]+`+)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def docs_page(skill: Skill, form: Literal["markdown", "html"] = "markdown") -> str:
    """Return the page.

    Raises:
        InvalidPackage: the notes cannot be read, or the package holds what no package may.
    """
    markdown = _markdown(skill)
    return markdown if form == "markdown" else _html(skill.name, markdown)


def escape_markdown(text: object) -> str:
    """Return one line of text that Markdown and HTML show as it is, in a table cell too."""
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", line)


def _code(text: object) -> str:
    """Return text as a code span whose fence is longer than any run of backticks in it."""
    line = " ".join(str(text).split())
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"


def _markdown(skill: Skill) -> str:
    # every value goes through `md` or `code`, or is a name that the models restrict to letters, digits and hyphens
    environment = shipped_templates()
    environment.filters.update(md=escape_markdown, code=_code)
    figures = figures_of(skill)
    words: Mapping[str, Any] = {
        "manifest": skill.manifest,
        "description": skill.description,
        "digest": root_digest(skill.path),
        "figures": figures,
        "toolchains": sorted({figure.toolchain for figure in figures}),
        "notes": _notes(skill),
        "shape": _shape,
        "dtypes": _dtypes,
        "note": _note,
        "variant_dtypes": _variant_dtypes,
        "needs": _needs,
        "pairs": _pairs,
    }
    return environment.get_template("page.md.jinja").render(words).rstrip() + "\n"


def _html(title: str, markdown: str) -> str:
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    # html=False: tags in the text become text, and links other than http, mailto and relative ones stay text
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    environment = shipped_templates(escapes_html=True)
    return environment.get_template("page.html.jinja").render(title=title, body=Markup(body))


# --- the notes --------------------------------------------------------------------------------


def _notes(skill: Skill) -> str:
    """Return SKILL.md without front matter and title, its headings one level down, raw HTML made visible."""
    text = (skill.path / NOTES_NAME).read_text(encoding="utf-8")
    return "\n".join(_shown(body_of(text).strip().splitlines())).strip()


def _shown(lines: list[str]) -> Iterator[str]:
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip().startswith(fence) and line.strip(" `~") == "":
            fence = ""
        elif not fence:
            if number == 0 and line.startswith("# "):
                continue
            line = "#" + line if _HEADING.match(line) else line
            parts = _CODE_SPAN.split(line)
            line = "".join(
                part if position % 2 else _TAG.sub("&lt;", part)
                for position, part in enumerate(parts)
            )
        yield line


# --- cells ------------------------------------------------------------------------------------


def _shape(spec: TensorSpec) -> str:
    return "scalar" if spec.shape is None else f"({', '.join(spec.shape)})"


def _dtypes(definition: Definition, spec: TensorSpec) -> str:
    return ", ".join(definition.dtypes.get(spec.dtype, (spec.dtype,)))


def _note(spec: TensorSpec) -> str:
    default = f"default {spec.default}" if spec.default is not None else ""
    return "; ".join(part for part in (spec.description, default) if part)


def _variant_dtypes(variant: Variant) -> str:
    return (
        "; ".join(f"{name}: {', '.join(dtypes)}" for name, dtypes in variant.dtypes.items())
        or "all"
    )


def _needs(variant: Variant) -> str:
    ranges = [
        f"{name} {wanted}" for name, wanted in variant.requires.model_dump().items() if wanted
    ]
    return ", ".join([*ranges, *variant.constraints])


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
