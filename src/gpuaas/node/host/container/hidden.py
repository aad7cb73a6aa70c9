"""What a machine does not see of its host, or may not change (T15).

Names and identities go: of the host, its disks, its other tenants. A loop device, for one, names the file behind it,
and with that another allocation. Counters of the whole host stay where programs need them (/proc/stat, /proc/meminfo).
"""

# Covered by an empty file or directory. What a kernel does not have, it does not have.
MASKED: tuple[str, ...] = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/swaps",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/bdi",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/btrfs",
    "/sys/fs/ext4",
    "/sys/fs/xfs",
    "/sys/kernel/boot_params",
    "/sys/kernel/btf",
    "/sys/kernel/debug",
    "/sys/kernel/irq",
    "/sys/kernel/notes",
    "/sys/kernel/security",
    "/sys/kernel/slab",
    "/sys/kernel/tracing",
    "/sys/kernel/vmcoreinfo",
)
READ_ONLY: tuple[str, ...] = ("/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
