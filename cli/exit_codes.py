"""Exit codes that a command gives of itself; an error brings its own (`executor.errors`)."""

from __future__ import annotations

FAILED = 1
"""What was asked for was done, and the answer is no: not accepted, not able."""
INVALID = 3
"""A check of files found something."""
NO_DEVICE = 6
"""Nothing could be verified without a GPU."""
INTERRUPTED = 130
"""Ctrl-C ended the command: 128 + SIGINT, as shells have it."""
