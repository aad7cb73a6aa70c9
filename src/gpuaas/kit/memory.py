"""Memory that is no longer needed goes back to the system, and what is needed for ever is not looked through.

Only glibc has to be told to give back; elsewhere that does nothing. By itself it keeps one arena per thread, and raises
the size from which a block is mapped (and unmapped) on its own to that of the largest one ever freed: each worker
thread that has checked one password would keep its 19 MiB for ever.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def give_back() -> None:
    """Call it early: what was allocated before stays where it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_MMAP_THRESHOLD, 256 * 1024)
        mallopt(_M_TRIM_THRESHOLD, 1024 * 1024)


@contextmanager
def starting() -> Iterator[None]:
    """What is made inside stays until the end: nobody looks for garbage among it, now or later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
