"""Limits of a process: the same for a machine's first and for those who enter it."""

import resource

_UNLIMITED = (1 << 64) - 1
# What is wanted, soft and hard.
_WANTED: dict[str, tuple[int, int]] = {
    # More by default than a login elsewhere has: data loaders open thousands.
    "RLIMIT_NOFILE": (65536, 1048576),
    # As much as there is: RDMA pins what it transfers. The cgroup counts it.
    "RLIMIT_MEMLOCK": (_UNLIMITED, _UNLIMITED),
    # Not 0: with 1, and only with 1, the kernel does not start the host's crash handler, as root, on a tenant's data.
    "RLIMIT_CORE": (1, 1),
}


def rlimits() -> dict[str, tuple[int, int]]:
    """Never above what this process has: without CAP_SYS_RESOURCE nothing can be raised."""
    found = {}
    for name, (soft, hard) in _WANTED.items():
        most = resource.getrlimit(getattr(resource, name))[1] & _UNLIMITED  # Python says -1
        found[name] = (min(soft, most), min(hard, most))
    return found


def apply() -> None:
    for name, (soft, hard) in rlimits().items():
        limits = [resource.RLIM_INFINITY if each == _UNLIMITED else each for each in (soft, hard)]
        resource.setrlimit(getattr(resource, name), (limits[0], limits[1]))
