"""The one folder that this project writes to outside a package."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "KERNEL_SKILLS_HOME"


def data_home() -> Path:
    """Return the data home: `KERNEL_SKILLS_HOME`, else the platform's user data folder. It may not exist yet."""
    if chosen := os.environ.get(HOME_VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("kernel-skills", appauthor=False)
