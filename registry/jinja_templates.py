"""The Jinja2 templates that this folder ships: a new package's files, and pages about a skill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent / "templates"


def shipped_templates(*, escapes_html: bool = False) -> Environment:
    """Return the environment to render them in; a name that a template uses and nobody gave is an error."""
    # imported here: `skills list` needs none of it
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=escapes_html,
    )
