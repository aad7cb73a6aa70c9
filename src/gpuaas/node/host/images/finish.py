"""What every base image has, wherever it came from: a login user, mount points, and nothing of its builder.

Run once, before an image is put into the store.
"""

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.tree import Owner, Tree

LOGIN, LOGIN_ID = "gpu", 1000
_EMPTIED = ("dev", "proc", "sys", "run", "tmp")
_NEEDED = {"bin/sh": "a shell", "usr/sbin/sshd": "openssh-server", "usr/bin/sudo": "sudo"}
# Of the machine or the build: identities, addresses, and how the packages got in.
_REMOVED = (
    "var/lib/dbus/machine-id",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "etc/.pwd.lock",
    "root/.bash_history",
)
_HOST_KEYS = "ssh_host_"
# The platform mounts its own over these; they have to be plain files.
_FILES = {"etc/machine-id": b"", "etc/resolv.conf": b"", "etc/hostname": b"machine\n"}
_HOSTS = b"127.0.0.1 localhost machine\n::1 localhost ip6-localhost\n"
_SUDO = f"{LOGIN} ALL=(ALL:ALL) NOPASSWD: ALL\n".encode()
# Each line of these names somebody in its first field, and an id in the third where there is one.
_ACCOUNTS = {
    "etc/passwd": (f"{LOGIN}:x:{LOGIN_ID}:{LOGIN_ID}::/home/{LOGIN}:SHELL", 0o644, 2),
    "etc/group": (f"{LOGIN}:x:{LOGIN_ID}:", 0o644, 2),
    "etc/shadow": (f"{LOGIN}:*:19000:0:99999:7:::", 0o640, None),  # no password fits; `!` would lock keys out too
    "etc/gshadow": (f"{LOGIN}:*::", 0o640, None),
}


def finish(tree: Tree) -> None:
    lacking = [what for path, what in _NEEDED.items() if not tree.exists(path)]
    if lacking:
        raise HostError("use", "the image", f"it lacks {', '.join(lacking)}", transient=False)
    for name in (*_EMPTIED, "etc", "home"):
        tree.directory(name)  # a link or a file in its place goes
    for name in _EMPTIED:
        for below in tree.names(name):
            tree.remove(f"{name}/{below}")
    tree.directory("tmp", Owner(mode=0o1777))
    tree.directory("run/lock", Owner(mode=0o1777))
    tree.directory("run/sshd", Owner(mode=0o755))
    for name in (*_REMOVED, *(f"etc/ssh/{key}" for key in tree.names("etc/ssh") if key.startswith(_HOST_KEYS))):
        tree.remove(name)
    for name, data in {**_FILES, "etc/hosts": _HOSTS}.items():
        tree.file(name, data, Owner())
    _add_login(tree)


def _add_login(tree: Tree) -> None:
    shadow = _group_id(tree, "shadow")
    shell = "/bin/bash" if tree.exists("bin/bash") else "/bin/sh"
    for name, (line, mode, id_field) in _ACCOUNTS.items():
        kept = [
            each for each in tree.read(name).decode("utf-8", "replace").splitlines() if not _is_ours(each, id_field)
        ]
        text = "\n".join([*kept, line.replace("SHELL", shell), ""])
        tree.file(name, text.encode(), Owner(gid=0 if mode == 0o644 else shadow, mode=mode))
    tree.file(f"etc/sudoers.d/{LOGIN}", _SUDO, Owner(mode=0o440))
    home = f"home/{LOGIN}"
    tree.directory(home, Owner(LOGIN_ID, LOGIN_ID, 0o750))
    for name in tree.names("etc/skel"):
        tree.file(f"{home}/{name}", tree.read(f"etc/skel/{name}"), Owner(LOGIN_ID, LOGIN_ID, 0o644))


def _is_ours(line: str, id_field: int | None) -> bool:
    fields = line.split(":")
    same_id = id_field is not None and len(fields) > id_field and fields[id_field] == str(LOGIN_ID)
    return not line or fields[0] == LOGIN or same_id


def _group_id(tree: Tree, name: str) -> int:
    for line in tree.read("etc/group").decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) > 2 and fields[2].isdigit():
            return int(fields[2])
    return 0
