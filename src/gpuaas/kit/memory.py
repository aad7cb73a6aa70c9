"""Memory that is no longer needed goes back to the system. Only glibc has to be told; elsewhere this does nothing.

By itself it keeps one arena per thread, and raises the size from which a block is mapped (and unmapped) on its own to
that of the largest one ever freed: each worker thread that has checked one password would keep its 19 MiB for ever.
"""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def give_back() -> None:
    """Call it early: what was allocated before stays where it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_MMAP_THRESHOLD, 256 * 1024)
        mallopt(_M_TRIM_THRESHOLD, 1024 * 1024)
