"""What a build does when something goes wrong, with recipes of a few bytes: only the base comes from Debian."""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import bundlefile, schema, settings, tools, verify
from gpuaas.runtimes.build.builder import Built, build
from gpuaas.runtimes.build.phases import PHASES, Progress
from gpuaas.runtimes.build.precheck import room
from gpuaas.runtimes.manifest import decode
from gpuaas.runtimes.recipe import Check, Recipe
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.tree import Entry
from runtimes.builds import SHELF, host, needs_tools

pytestmark = [needs_tools, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A new one that shares what was fetched, and the lists of apt."""
    SHELF.make()
    made = Shelf(tmp_path / "shelf")
    made.path.mkdir()
    for name in ("artifacts", "apt", "bases"):
        (made.path / name).symlink_to(SHELF.path / name)
    made.make()
    return made


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "tool").write_text('#!/bin/sh\necho "tool in $(dirname "$0")"\n')
    (tmp_path / "tool").chmod(0o755)
    with tarfile.open(tmp_path / "tool.tar.gz", "w:gz") as out:
        out.add(tmp_path / "tool", "tool-1/bin/tool")
    return tmp_path / "tool.tar.gz"


@pytest.fixture
def made(archive: Path, shelf: Shelf) -> Callable[[str], Built]:
    def make(more: str, again: bool = False) -> Built:
        return build(recipe(archive, more), tools.architecture(), settings.load(), shelf, again=again)

    return make


def recipe(archive: Path, more: str, strip: int = 1) -> Recipe:
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = f"{{archive: '{archive.as_uri()}', sha256: {sha256}, into: ., strip: {strip}}}"
    return schema.loads(f"name: tool\nversion: 1\nsources: [{source}]\n{more}", "runtime.yml")


GOOD = """\
environment: {PATH_PREPEND: '${root}/bin'}
verify:
  - {run: tool, expect: ^tool in /opt/gpuaas/runtimes/tool/1/bin$}
"""


@pytest.mark.acceptance("RT05")
def test_a_small_one_is_built_tested_carried_and_taken_in(
    made: Callable[[str], Built], shelf: Shelf, tmp_path: Path
) -> None:
    first = made(GOOD)
    assert first.new
    assert not made(GOOD).new, "it is there already"
    verify.test("tool", "1", shelf, lambda message, percent: None)
    bundlefile.export("tool", "1", shelf, tmp_path / "tool.tar")
    other = Shelf(tmp_path / "other")
    assert bundlefile.take_in(tmp_path / "tool.tar", other) == first.manifest
    assert other.built("tool", "1") == first.sha256


def test_a_damaged_one_is_made_anew(made: Callable[[str], Built], shelf: Shelf, tmp_path: Path) -> None:
    """As whoever finds the damage is told: by `runtime build`, or by the next `deploy`."""
    first = made(GOOD)
    image = shelf.image(first.sha256)
    whole = image.read_bytes()
    image.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])  # as large as before
    with pytest.raises(Problem) as refused:
        bundlefile.export("tool", "1", shelf, tmp_path / "tool.tar")
    assert (refused.value.code, refused.value.hint) == ("damaged_image", "Run `gpuaas runtime build tool:1`.")
    again = made(GOOD)
    assert (again.new, again.sha256) == (True, first.sha256)
    assert image.read_bytes() == whole
    assert not made(GOOD).new
    for name in ("files.json", "lock.json", "manifest.json"):
        paper = shelf.bundle("tool", "1") / first.sha256 / name
        paper.write_bytes(paper.read_bytes()[:-10])
        assert made(GOOD).new, "its papers belong to it"
        assert verify.verify("tool", "1", shelf).intact
    bundlefile.export("tool", "1", shelf, tmp_path / "tool.tar")


def test_what_nobody_could_take_in_is_not_built(made: Callable[[str], Built], shelf: Shelf, tmp_path: Path) -> None:
    """Names that differ only in case, as some packages have them. Without one of them it can be carried."""
    alike = "run: mkdir include && touch include/xt_MARK.h include/xt_mark.h\n"
    with pytest.raises(Problem) as refused:
        made(alike)
    assert refused.value.code == "refused_content"
    assert refused.value.message == "include/xt_mark.h: its name is too much like 'include/xt_MARK.h'."
    assert "`remove:` in the recipe" in refused.value.hint
    assert shelf.built("tool", "1") is None
    built = made(f"{alike}remove: ['include/xt_[A-Z]*.h']\n")
    bundlefile.export("tool", "1", shelf, tmp_path / "tool.tar")
    assert bundlefile.take_in(tmp_path / "tool.tar", Shelf(tmp_path / "other")) == built.manifest


def test_of_checks_that_fail_the_first_is_told_and_nothing_hangs(made: Callable[[str], Built]) -> None:
    with pytest.raises(Problem, match="A check of the runtime failed: exit 3"):
        made("verify: ['true', 'exit 3', 'sleep 500', 'exit 4']\n")


IN_THE_IMAGE = """\
verify:
  - {run: 'stat -f -c %T bin/tool; stat -c %Y bin/tool', expect: 1577836800}
  - {run: cat /proc/mounts, expect: ' /opt/gpuaas/runtimes/tool/1 erofs ro,'}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_checks_run_in_the_mounted_image(made: Callable[[str], Built], shelf: Shelf) -> None:
    assert made(IN_THE_IMAGE).new
    verify.test("tool", "1", shelf, lambda message, percent: None)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes from root what others do not have")
def test_checks_run_in_what_the_image_holds_where_nobody_mounts(made: Callable[[str], Built], shelf: Shelf) -> None:
    made(GOOD)
    program = f"""
from pathlib import Path
from gpuaas.runtimes import verify
from gpuaas.runtimes.shelf import Shelf
verify.test("tool", "1", Shelf(Path({str(shelf.path)!r})), lambda message, percent: print(message))
"""
    command = ["setpriv", "--bounding-set", "-sys_admin", "--", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1 checks"]), done.stderr


def test_phases_are_told_in_order(archive: Path, shelf: Shelf) -> None:
    """Each begins in its turn, and ends once."""
    told: list[Progress] = []
    build(recipe(archive, GOOD), tools.architecture(), settings.load(), shelf, told.append)
    assert [each.phase for each in told if each.state == "running" and not each.message] == [name for name, _ in PHASES]
    assert sorted(each.phase for each in told if each.state == "done") == sorted(name for name, _ in PHASES)


def test_a_check_that_fails_leaves_a_log_and_nothing_else(made: Callable[[str], Built], shelf: Shelf) -> None:
    with pytest.raises(Problem) as refused:
        made("run: echo this was run\nverify: ['echo good', 'echo bad; exit 3']\n")
    problem = refused.value
    assert problem.code == "verify_failed"
    assert "echo bad; exit 3" in problem.message
    (log,) = (shelf.path / "logs").iterdir()
    assert str(log) in problem.hint
    assert "this was run" in log.read_text()
    assert shelf.built("tool", "1") is None
    assert not list((shelf.path / "images").iterdir())
    assert not list((shelf.path / "work").iterdir())


@pytest.mark.acceptance("D06")
@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("verify: [{run: echo 17, expect: ^18$}]", "verify_failed", "something else than"),
        ("run: exit 4", "build_failed", "failed with code 4"),
        ("run: touch /usr/x", "build_failed", "failed with code"),
        ("links: {bin/x: bin/missing}", "build_failed", "leads to nothing"),
        (
            "mounts: [{source: lib, target: /usr/local/lib}]",
            "build_failed",
            "names lib, which the runtime does not have",
        ),
        (
            "mounts: [{source: bin, target: /usr/local/bin, selective: [tool, other]}]",
            "build_failed",
            "names bin/other, which the runtime does not have",
        ),
        ("run: ln -s /etc/passwd leak", "refused_content", "outside of the runtime"),
        ("run: mkfifo bin/pipe", "refused_content", "neither a file"),
        ("run: chmod 4755 bin/tool\nverify: ['true']", "", ""),  # taken away in the image
        ("verify: ['touch /opt/gpuaas/runtimes/tool/1/x']", "verify_failed", "A check"),
        ("verify: ['bash -c \"exec 3<>/dev/tcp/deb.debian.org/80\"']", "verify_failed", "A check"),
    ],
)
def test_what_goes_wrong_is_said(made: Callable[[str], Built], shelf: Shelf, more: str, code: str, said: str) -> None:
    if not code:
        place = shelf.bundle("tool", "1") / made(more + "\n").sha256
        entries = msgspec.json.decode((place / "files.json").read_bytes(), type=list[Entry])
        assert [each.mode for each in entries if each.path == "bin/tool"] == [0o755]
        return
    with pytest.raises(Problem) as refused:
        made(more + "\n")
    assert refused.value.code == code
    assert said in refused.value.message
    assert shelf.built("tool", "1") is None


def test_build_tools_are_there_for_commands_and_not_in_the_result(
    made: Callable[[str], Built], archive: Path, shelf: Shelf
) -> None:
    tool = recipe(archive, "run: bc --version > bc.txt\nverify: ['! command -v bc', 'grep -q bc bc.txt']\n")
    source = schema.loads("name: x\nversion: 1\nsources: [{deb: bc, suite: bookworm, build_only: true}]\n", "x").sources
    built = build(
        msgspec.structs.replace(tool, sources=(*tool.sources, *source)), tools.architecture(), settings.load(), shelf
    )
    place = shelf.bundle("tool", "1") / built.sha256
    paths = {each.path for each in msgspec.json.decode((place / "files.json").read_bytes(), type=list[Entry])}
    assert paths == {"activate.sh", "bc.txt", "bin", "bin/tool", "runtime.yml"}
    components = msgspec.json.decode((place / "sbom.json").read_bytes())["components"]
    assert [each["name"] for each in components] == ["tool.tar.gz"]


def test_an_archive_that_changed_since(made: Callable[[str], Built], archive: Path, shelf: Shelf) -> None:
    text = recipe(archive, GOOD)
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(Problem) as refused:
        build(text, tools.architecture(), settings.load(), shelf)
    assert refused.value.code == "wrong_digest"


def test_a_damaged_zip_is_refused_with_the_log(archive: Path, shelf: Shelf) -> None:
    """It has its digest: whoever published it, published this."""
    packed = archive.with_name("tool.zip")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("bin/tool", "#!/bin/sh\n" * 100)
    whole = bytearray(packed.read_bytes())
    whole[38:42] = b"\xff" * 4  # where its bytes begin: no kind of block that there is
    packed.write_bytes(whole)
    with pytest.raises(Problem) as refused:
        build(recipe(packed, GOOD, strip=0), tools.architecture(), settings.load(), shelf)
    assert refused.value.code == "refused_content"
    assert "it is damaged" in refused.value.message
    (log,) = (shelf.path / "logs").iterdir()
    assert str(log) in refused.value.hint
    assert "it is damaged" in log.read_text()


def test_before_work_starts(tmp_path: Path, archive: Path, shelf: Shelf) -> None:
    with pytest.raises(Problem) as refused:
        room(tmp_path, 10**18)
    assert refused.value.code == "disk_full"
    nowhere = settings.Settings(debian_mirror="http://127.0.0.1:9/debian")
    with pytest.raises(Problem) as refused:
        build(recipe(archive, GOOD), tools.architecture(), nowhere, shelf)
    assert refused.value.code == "index_unreachable"
    assert "127.0.0.1:9" in refused.value.message
    with pytest.raises(Problem, match="nothing to build"):
        build(schema.loads("name: empty\nversion: 1\n", "x"), tools.architecture(), settings.load(), shelf)


REACHES_OUT = """\
run: |
  for place in /usr /etc /opt /var /root /home /srv /boot; do echo x > $place/gpuaas-was-here || true; done
  rm -rf /usr/bin/apt-get /usr/bin/dpkg /etc/apt /var/lib/dpkg || true
  apt-get remove -y bash || true
verify: [bin/tool]
"""


@pytest.mark.acceptance("D07", "D08", "RT06")
def test_a_build_changes_nothing_on_the_host(archive: Path, shelf: Shelf) -> None:
    """With commands that try, and with Debian packages that have scripts of their own."""
    deb = schema.loads("name: x\nversion: 1\nsources: [{deb: [bc, ca-certificates], suite: bookworm}]\n", "x").sources
    tool = recipe(archive, REACHES_OUT)
    tool = msgspec.structs.replace(tool, sources=(*tool.sources, *deb))
    before, packages = host(), installed()
    built = build(tool, tools.architecture(), settings.load(), shelf)
    after = host()
    assert built.new
    assert "apt-get" in (shelf.bundle("tool", "1") / built.sha256 / "build.log").read_text(), "it did try"
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert not changed, f"the build changed the host: {sorted(changed)[:5]}"
    assert installed() == packages


def installed() -> list[str]:
    asked = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.acceptance("D03")
def test_a_test_runs_what_the_recipe_says_in_the_image(made: Callable[[str], Built], shelf: Shelf) -> None:
    """The image is the same; what is asked of it is not."""
    place = shelf.bundle("tool", "1") / made(GOOD).sha256
    manifest = decode((place / "manifest.json").read_bytes())
    for run, expect, fails in (("tool", "in /opt/gpuaas", False), ("tool", "^other", True), ("no-tool", "", True)):
        changed = msgspec.structs.replace(manifest.recipe, verify=(Check(run, expect),))
        (place / "manifest.json").write_bytes(
            msgspec.json.encode(msgspec.structs.replace(manifest, recipe=changed)),
        )
        if not fails:
            verify.test("tool", "1", shelf, lambda message, percent: None)
            continue
        with pytest.raises(Problem) as refused:
            verify.test("tool", "1", shelf, lambda message, percent: None)
        assert refused.value.code == "verify_failed"
