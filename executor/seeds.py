"""Seeds: a public part that a record keeps, joined with a secret that only its hash is kept of."""

from __future__ import annotations

import hashlib
import secrets

from kernel_skills.executor.trace import Seed


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed from anything that has a text: a secret, a workload, the purpose of the draw."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def secret_seed(public: int) -> tuple[int, Seed]:
    """Return (the seed to draw with, what a Trace may say of it)."""
    secret = secrets.token_hex(16)
    kept = Seed(public=public, secret_sha256=hashlib.sha256(secret.encode()).hexdigest())
    return derive_seed(public, secret), kept
