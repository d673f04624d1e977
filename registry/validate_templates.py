"""Checks of templates: they exist, parse as Jinja2, and with their defaults give Python that defines the entry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.models import Manifest, Template
from kernel_skills.registry.text_file import read_text
from kernel_skills.registry.validate_sources import TEMPLATES_FOLDER

_RULE = "template"


def check_templates(
    folder: Path, manifest: Manifest, paths: frozenset[str], findings: Findings
) -> None:
    """Check every [[template]] of a package."""
    for index, template in enumerate(manifest.template):
        place = ("template", index)
        words = f"template {template.id!r}: "
        for message, mend in _parameter_faults(template):
            findings.at((*place, "defaults"), _RULE, words + message, mend)
        if template.path not in paths or not template.path.startswith(f"{TEMPLATES_FOLDER}/"):
            message = f"{words}no file {template.path!r} in {TEMPLATES_FOLDER}/"
            findings.at((*place, "path"), _RULE, message, "add it or mend the path")
            continue
        try:
            text = read_text(folder / template.path, _RULE)
        except InvalidPackage as error:
            findings.add(template.path, None, _RULE, str(error))
            continue
        for line, message, mend in _text_faults(text, template):
            findings.add(template.path, line, _RULE, message, mend)


def _parameter_faults(template: Template) -> Iterator[tuple[str, str]]:
    for name, values in template.parameters.items():
        if name not in template.defaults:
            yield f"parameter {name!r} has no default", "add one to `defaults`"
        elif template.defaults[name] not in values:
            yield (
                f"the default of {name!r} is not among its values",
                f"use one of {', '.join(map(str, values))}",
            )


def _text_faults(text: str, template: Template) -> Iterator[tuple[int | None, str, str]]:
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # sandboxed: a package is foreign, and a template can reach Python through attributes
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    try:
        filled = environment.from_string(text).render(template.defaults)
        tree = ast.parse(filled)
    except TemplateSyntaxError as error:
        yield error.lineno, f"does not parse as Jinja2: {error.message}", ""
    except SecurityError as error:
        yield None, f"does what a template may not: {error}", ""
    except (TemplateError, ArithmeticError, TypeError, ValueError) as error:
        yield (
            None,
            f"cannot be filled with its defaults: {error}",
            "give every name that it uses a default",
        )
    except SyntaxError as error:
        message = f"filled with its defaults it is no Python: {error.msg} (line {error.lineno} of the result)"
        yield None, message, ""
    else:
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if template.entry not in functions:
            yield (
                None,
                f"filled, it defines no function {template.entry!r}",
                f"it defines {', '.join(functions)}",
            )
