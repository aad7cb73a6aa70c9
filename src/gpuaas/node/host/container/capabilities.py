"""What root inside a machine may do, within its own namespaces.

Docker's default without MKNOD: no device can be made. NET_RAW is here only because ping is installed with it as a
file capability, and the kernel refuses to start a program whose capabilities cannot be had: raw and packet sockets are
refused by `seccomp`, and ping uses its own kind, which a sysctl opens to everybody (`config`).
"""

CAPABILITIES: dict[str, int] = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,  # sshd
    "CAP_AUDIT_WRITE": 29,
    "CAP_SETFCAP": 31,  # apt, for packages like ping; what it sets counts only for this user namespace
}
MASK = sum(1 << number for number in CAPABILITIES.values())
