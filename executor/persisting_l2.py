"""The share of the L2 cache that a process may set aside for itself: none, in a measurement.

A kernel whose working set stays in the cache from call to call is timed as if memory were several times faster.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

_LIMIT_PERSISTING_L2_CACHE_SIZE = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, cuda.h of CUDA 11 to 13."""


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def reset_persisting_l2() -> int:
    """Let go of persisting lines and forbid new ones in the current context; return the bytes that were allowed before.

    0 as well where there is no NVIDIA driver, or one older than CUDA 11.
    """
    driver = _driver()
    if driver is None or not hasattr(driver, "cuCtxResetPersistingL2Cache"):
        return 0
    allowed = ctypes.c_size_t(0)
    if driver.cuCtxGetLimit(ctypes.byref(allowed), _LIMIT_PERSISTING_L2_CACHE_SIZE) != 0:
        return 0
    driver.cuCtxSetLimit(_LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0))
    driver.cuCtxResetPersistingL2Cache()
    return int(allowed.value)
