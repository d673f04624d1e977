"""Lint, compile, verify, bench and profile a kernel, in worker processes."""
