"""T5: no program of the platform's can be written by those who run it (CVE-2019-5736)."""

import hashlib
import re
import shutil
import socket
from pathlib import Path

from root.conftest import needs
from root.escape.conftest import Launch
from root.linux import Node
from root.machines import Machine

pytestmark = needs("runc", "catatonit", "ssh")
LOGINS, CALLERS, RUNS = 20, 60, 40
TRIES = 1000
# Tries, for as long as it runs, to write to the program of every process, by each of the known ways. Says how often
# it has tried programs that are not the machine's own, of how many processes, and what it has opened.
WRITER = """
import os, sys, time
print("there", flush=True)
won, tries, tried = [], 0, set()
deadline = time.monotonic() + 60
while time.monotonic() < deadline and not os.path.exists("/tmp/enough"):
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        exe = f"/proc/{pid}/exe"
        try:
            if not os.readlink(exe).startswith("/run/gpuaas"):
                continue
        except FileNotFoundError:
            continue
        except OSError:
            pass
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            tries += 1
            tried.add(pid)
            try:
                handle = os.open(exe, os.O_PATH)
                fd = os.open(f"/proc/self/fd/{handle}", flags)
                where = os.readlink(f"/proc/self/fd/{fd}")
                if where.startswith("/usr/") or where.startswith("/bin/"):  # the machine's own
                    os.close(fd)
                    continue
                won.append(where)
                os.write(fd, b"#!/bin/evil")
            except OSError:
                pass
            finally:
                os.closerange(3, 64)
print(tries, len(tried), won)
"""
TAMPER = """
exec 2>&1
cd /
for path in /run/gpuaas/tools /run/gpuaas/tools/lib /run/gpuaas/access /run/gpuaas/access/keys; do
    touch $path/new && echo "made a file in $path"
    umount $path && echo "unmounted $path"
    umount -l $path && echo "unmounted $path lazily"
    mount -o remount,rw,bind $path && echo "remounted $path"
    mount --bind /tmp $path && echo "mounted over $path"
    mount -t tmpfs none $path && echo "mounted anew over $path"
    mv $path /tmp/elsewhere && echo "moved $path"
    rm -rf $path/* && echo "removed from $path"
    chmod 777 $path && echo "opened $path"
    chown gpu $path && echo "owned $path"
done
for file in /run/gpuaas/tools/{sshd,init,lib/loader,lib/libc.so.6} \\
        /run/gpuaas/access/host_key /run/gpuaas/access/sshd_config /run/gpuaas/access/keys/gpu; do
    (echo evil >> $file) && echo "wrote $file"
    ln -f /bin/true $file && echo "linked over $file"
    mv -f /bin/true $file && echo "moved over $file"
    python3 -c "import os; os.truncate('$file', 0)" && echo "cut $file"
    setfattr -n user.x -v y $file && echo "marked $file"
done
mv /run /run2 && echo "moved /run"
mv /run/gpuaas /run/elsewhere && echo "moved /run/gpuaas"
unshare -m true && echo "unshared"
unshare -Urm true && echo "unshared as root"
nsenter -t 1 -m true && echo "entered"
true
"""


CLAIMS = set(re.findall(r'echo "(\w+)', TAMPER))


def programs(node: Node) -> dict[str, str]:
    runtimes = [Path(found).resolve() for name in ("runc", "crun", "catatonit") if (found := shutil.which(name))]
    tools = [path for path in (node.config.paths.run / "tools").rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (*runtimes, *tools)}


def test_a_running_program_is_not_written(tenant: Launch) -> None:
    machine = tenant()
    before = programs(machine.node)
    # Whoever logs in starts, by their shell, the program that they come from.
    shell = "printf '#!/proc/self/exe\\n' >/usr/bin/shell; chmod 755 /usr/bin/shell"
    setup = machine.root(f"{shell}; cat >/tmp/w.py <<'EOF'\n{WRITER}EOF")
    assert setup.returncode == 0, setup.stderr
    writer = machine.session("exec sudo python3 /tmp/w.py")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "there\n"
    assert machine.root("usermod -s /usr/bin/shell gpu || sed -i 's,^\\(gpu:.*\\):.*,\\1:/usr/bin/shell,' /etc/passwd")
    comers = [machine.session("true") for _ in range(LOGINS)]
    for _ in range(CALLERS):  # who only come to the door pass through the same programs, and quicker
        with socket.create_connection(("127.0.0.1", machine.body.ssh_port)) as connection:
            connection.settimeout(20)
            assert connection.recv(4) == b"SSH-"
    for each in comers:
        each.communicate(timeout=60)
    # The machine's own shell is no way in any more: its writer is told by the host.
    first = machine.host._machines.record(machine.id).first.pid  # type: ignore[union-attr]
    Path(f"/proc/{first}/root/tmp/enough").touch()
    tries, processes, won = writer.communicate(timeout=60)[0].split(maxsplit=2)
    assert won == "[]\n"
    assert int(tries) >= TRIES
    assert int(processes) > CALLERS // 2, "too few were seen to say anything"
    machine.stop()
    machine.plant("sed -i 's,^\\(gpu:.*\\):.*,\\1:/bin/bash,' etc/passwd")
    machine.restart()
    assert programs(machine.node) == before
    assert machine.ssh("true").returncode == 0


def test_the_oci_runtime_is_not_written_by_what_it_runs(machine: Machine) -> None:
    """As it was done: the program that is run is the one that runs it, and a writer waits for that moment."""
    machine.start()
    runc = Path(shutil.which("runc") or "").resolve()
    before = hashlib.sha256(runc.read_bytes()).hexdigest()
    write = "printf '#!/proc/self/exe\\n' >/usr/bin/self; chmod 755 /usr/bin/self; cat >/tmp/w.py"
    assert machine.exec("/bin/sh", "-c", write, text=WRITER).code == 0
    # With the runtime's own library in its place too: the way of those that came after.
    assert machine.exec("/bin/sh", "-c", "ln -s /proc/self/exe /usr/bin/linked").code == 0
    writer = machine.popen("/usr/bin/python3", "/tmp/w.py")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "there\n"
    for number in range(RUNS):
        machine.exec(("/usr/bin/self", "/proc/self/exe", "/usr/bin/linked")[number % 3])
    assert machine.exec("/usr/bin/touch", "/tmp/enough").code == 0
    tries, processes, won = writer.communicate(timeout=60)[0].split(maxsplit=2)
    assert won == "[]\n"
    assert int(tries) >= TRIES
    assert int(processes) > RUNS // 4, "too few were seen to say anything"
    assert hashlib.sha256(runc.read_bytes()).hexdigest() == before


def test_root_inside_cannot_touch_what_the_platform_has_there(tenant: Launch) -> None:
    machine = tenant()
    before = programs(machine.node)
    done = machine.root(TAMPER)
    allowed = [line for line in done.stdout.splitlines() if line.split()[0] in CLAIMS]
    assert allowed == []
    assert programs(machine.node) == before
    assert machine.ssh("true").returncode == 0


def test_nobody_inside_looks_into_the_platforms_programs(tenant: Launch) -> None:
    machine = tenant()
    script = (
        "exec 2>/dev/null\nfor pid in 1 $(ps -eo pid,args --no-headers | awk '/sshd/ && !/awk/ {print $1}'); do\n"
        "for each in mem maps environ fd/0 fd/1 fd/2 exe cwd root; do cat /proc/$pid/$each | head -c1 | grep -q . && "
        "echo $pid $each; ls /proc/$pid/$each >/dev/null && readlink /proc/$pid/$each; done; done\n"
        "cat /run/gpuaas/tools/init /run/gpuaas/tools/lib/loader\n"
    )
    done = machine.root(script)
    assert done.stdout == ""


def test_the_runtime_is_not_reached_by_the_first_process(tenant: Launch) -> None:
    """It is the platform's own, whatever the tree says."""
    machine = tenant()
    assert machine.root("rm -rf /sbin/init /usr/sbin/init /init; printf '#!/proc/self/exe' >/init; chmod 755 /init")
    machine.restart()
    first = machine.host._machines.record(machine.id).first.pid  # type: ignore[union-attr]
    assert machine.ssh("true").returncode == 0  # by then the runtime is done
    assert Path(f"/proc/{first}/cmdline").read_text().split("\0")[0] == "/run/gpuaas/tools/init"
