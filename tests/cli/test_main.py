"""What holds for every command: exit codes, errors, --json, start-up, completion."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.conftest import Gpuaas
from gpuaas.cli.main import COMMANDS, cli
from sdk import samples
from sdk.playback import HANG_UP, Answer, Playback, problem

SHOW = "/api/v1/allocations/train-1"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (413, 2), (422, 2), (401, 3), (403, 3), (404, 4), (409, 5), (500, 6), (503, 6), (429, 6), (302, 6)],
)
def test_a_refusal_has_an_exit_code(gpuaas: Gpuaas, server: Playback, status: int, code: int) -> None:
    server.on("GET", SHOW, problem(status, "some_code", "This went wrong.", "Do that."))
    said = gpuaas("show", "train-1")
    assert (said.code, said.out) == (code, "")
    assert said.err.splitlines() == ["error: This went wrong.", "  Do that.", "  correlation id cr-1"]
    said = gpuaas("show", "train-1", "--json")
    assert (said.code, said.out) == (code, "")
    found = json.loads(said.err)
    assert (found["code"], found["status"], found["correlation_id"]) == ("some_code", status, "cr-1")


def test_unreachable(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", SHOW, HANG_UP)
    said = gpuaas("show", "train-1")
    assert said.code == 6
    assert "does not answer" in said.err


def test_not_signed_in_sends_nothing(gpuaas: Gpuaas, server: Playback) -> None:
    said = gpuaas("ls", GPUAAS_TOKEN="")
    assert said.code == 3
    assert "gpuaas login" in said.err
    assert server.asked == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["lauch"], "gpuaas launch"),
        (["key", "lst"], "gpuaas key ls"),
        (["admin", "audit", "verfy"], "gpuaas admin audit verify"),
        (["launch", "x"], "--offer"),
        (["launch", "x", "--offer", "y", "--count", "65"], "65"),
        (["token", "create", "x", "--expires", "soon"], "90d"),
        (["xyzzy"], "gpuaas --help"),
    ],
)
def test_a_mistyped_command_says_what_fits(gpuaas: Gpuaas, arguments: list[str], hint: str) -> None:
    said = gpuaas(*arguments)
    assert (said.code, said.out) == (2, "")
    assert hint in said.err
    assert json.loads(gpuaas(*arguments, "--json").err)["code"] == "usage"


def test_nothing_from_the_server_steers_the_terminal(gpuaas: Gpuaas, server: Playback) -> None:
    evil = "a\x1b]0;title\x07\x9b31m\u202eb\nc"
    server.on("GET", SHOW, Answer(200, samples.allocation(evil)))
    shown = gpuaas("show", "train-1")
    assert "a\\x1b]0;title\\x07\\x9b31m\\u202eb\\nc" in shown.out
    raw = gpuaas("show", "train-1", "--json")
    assert raw.json["name"] == evil
    server.on("GET", SHOW, problem(409, "evil", evil, evil, **{evil: evil}))
    refused, refused_json = gpuaas("show", "train-1"), gpuaas("show", "train-1", "--json")
    for text in (shown.out, raw.out, refused.err, refused_json.err):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


@pytest.mark.parametrize("arguments", [[], ["key"], ["admin", "audit"]])
def test_a_group_alone_shows_its_help(gpuaas: Gpuaas, arguments: list[str]) -> None:
    said = gpuaas(*arguments)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Usage: gpuaas")


def test_json_may_come_first(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", SHOW, Answer(200, samples.allocation()))
    assert gpuaas("--json", "show", "train-1").json["name"] == "train-1"


def test_an_interrupt_is_exit_code_130(gpuaas: Gpuaas, server: Playback) -> None:
    frame = f"id: 8\nevent: x\ndata: {json.dumps(samples.event(8))}\n\n".encode()
    server.on("GET", "/api/v1/events/follow", Answer(chunks=(frame,)))
    process = subprocess.Popen(
        gpuaas.command("events", "--follow"), env=gpuaas.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"allocation.active" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (130, b"")


def test_color_is_for_terminals_only(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", SHOW, Answer(200, samples.allocation()))
    assert "\x1b" not in gpuaas("show", "train-1").out


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    names = command.list_commands(context)
    return [
        found for name in names for found in every_command(command.get_command(context, name) or command, (*path, name))
    ]


def test_every_command_has_help_and_takes_json() -> None:
    # They never answer; what they print is not theirs.
    without_json = {("server",), ("agent", "run"), ("completion",), ("ssh",), ("ssh-proxy",)}
    for path, command in every_command(cli):
        assert command.help, path
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) == (path not in without_json), path


def test_every_command_is_in_the_reference() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for path, _ in every_command(cli):
        assert f"`{' '.join(path)}" in reference, path


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    for section in COMMANDS.values():
        for name, lazy in section.items():
            assert cli.get_command(click.Context(cli), name) is not None
            assert lazy.help.endswith(".")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(gpuaas: Gpuaas, shell: str) -> None:
    said = gpuaas("completion", shell)
    assert said.code == 0
    assert "_GPUAAS_COMPLETE" in said.out


@pytest.mark.parametrize(("words", "fits"), [("la", ["launch"]), ("key ", ["add", "ls", "remove"])])
def test_completion_answers(gpuaas: Gpuaas, words: str, fits: list[str]) -> None:
    asking = {
        "_GPUAAS_COMPLETE": "bash_complete",
        "COMP_WORDS": f"gpuaas {words}",
        "COMP_CWORD": str(1 + words.count(" ")),
    }
    done = subprocess.run(
        gpuaas.command(), capture_output=True, text=True, env={**gpuaas.environment, **asking}, check=False
    )
    assert done.stdout.split() == [f"plain,{name}" for name in fits]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["key", "--help"], ["server", "--help"]])
def test_starting_up_imports_neither_server_nor_http(arguments: list[str]) -> None:
    program = (
        "import sys; from gpuaas.cli.main import run; code = run(sys.argv[1:]);"
        "heavy = {'httpx', 'rich', 'sqlalchemy', 'litestar', 'msgspec'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_imports_httpx_without_the_program_that_comes_with_it(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", SHOW, Answer(200, samples.allocation()))
    program = (
        "import sys, gpuaas.cli.main as m; sys.argv[1:] = ['show', 'train-1']\n"
        "try: m.main()\nfinally: print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=gpuaas.environment, check=False
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_a_reader_that_left_is_no_error(gpuaas: Gpuaas, server: Playback) -> None:
    many = samples.page(*[samples.allocation(f"train-{i}") for i in range(5000)])
    server.on("GET", "/api/v1/allocations", Answer(200, many))
    command = " ".join(gpuaas.command("ls", "--project", "x"))
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, env=gpuaas.environment, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""
