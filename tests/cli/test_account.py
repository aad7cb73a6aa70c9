"""Signing in and out, and the file that remembers it."""

import json
import stat

from cli.conftest import Gpuaas
from sdk import samples
from sdk.playback import Answer, Playback, problem

TOKEN = "/api/v1/tokens/tk-aaaaaaaaaaaaaaaa"


def login(gpuaas: Gpuaas, server: Playback) -> None:
    secret = "gpt_new"
    server.on("POST", "/api/v1/login", Answer(200, samples.issued(secret)))
    server.on("GET", "/api/v1/whoami", Answer(200, samples.whoami()))
    said = gpuaas("login", server.url, "--email", "ada@example.org", "--password-stdin", stdin="pass word\n",
                  GPUAAS_SERVER="", GPUAAS_TOKEN="")  # fmt: skip
    assert said.code == 0, said.err
    assert secret not in said.out + said.err


def test_login_keeps_a_token_that_nobody_else_can_read(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    assert server.to("POST", "/api/v1/login")[0].json == {"email": "ada@example.org", "password": "pass word"}
    assert stat.S_IMODE(gpuaas.config.stat().st_mode) == 0o600
    kept = json.loads(gpuaas.config.read_text())
    assert kept["server"] == server.url
    assert kept["accounts"][server.url] == {"token": "gpt_new", "email": "ada@example.org", "project": "default"}
    gpuaas("whoami", GPUAAS_SERVER="", GPUAAS_TOKEN="")
    assert server.asked[-1].headers["Authorization"] == "Bearer gpt_new"


def test_the_environment_wins(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    server.on("GET", "/api/v1/allocations", Answer(200, samples.page()))
    gpuaas("ls", GPUAAS_TOKEN="gpt_other", GPUAAS_PROJECT="elsewhere")
    assert server.asked[-1].headers["Authorization"] == "Bearer gpt_other"
    assert "project=elsewhere" in server.asked[-1].query


def test_a_token_is_never_sent_to_another_server(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    count = len(server.asked)
    other = server.url.replace("127.0.0.1", "localhost")
    assert gpuaas("whoami", GPUAAS_SERVER=other, GPUAAS_TOKEN="").code == 3
    assert len(server.asked) == count


def test_a_file_that_others_can_read_is_closed(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    gpuaas.config.chmod(0o644)
    gpuaas("whoami")
    assert stat.S_IMODE(gpuaas.config.stat().st_mode) == 0o600


def test_login_with_a_token(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", "/api/v1/whoami", Answer(200, samples.whoami(samples.project("a"), samples.project("b"))))
    said = gpuaas("login", "--token-stdin", stdin="gpt_ci\n", GPUAAS_TOKEN="")
    assert said.code == 0
    assert "project use" in said.err
    assert json.loads(gpuaas.config.read_text())["accounts"][server.url]["token"] == "gpt_ci"


def test_a_wrong_password_changes_nothing(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", "/api/v1/login", problem(401, "wrong_credentials"))
    assert gpuaas("login", "--email", "a@b", "--password-stdin", stdin="x\n").code == 3
    assert not gpuaas.config.exists()


def test_logout_revokes_and_forgets(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    server.on("DELETE", TOKEN, Answer(204))
    said = gpuaas("logout", GPUAAS_TOKEN="")
    assert said.code == 0
    assert server.asked[-1].headers["Authorization"] == "Bearer gpt_new"
    assert json.loads(gpuaas.config.read_text())["accounts"] == {}


def test_logout_forgets_also_when_the_server_is_of_no_help(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    server.on("DELETE", TOKEN, problem(500, "internal"))
    said = gpuaas("logout", GPUAAS_TOKEN="")
    assert said.code == 0
    assert "until it expires" in said.err
    assert json.loads(gpuaas.config.read_text())["accounts"] == {}


def test_a_broken_file_is_named(gpuaas: Gpuaas, server: Playback) -> None:
    gpuaas.config.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"accounts": 3}'):
        gpuaas.config.write_text(text)
        said = gpuaas("ls", GPUAAS_SERVER="", GPUAAS_TOKEN="")
        assert said.code == 2
        assert str(gpuaas.config) in said.err


def test_project_use(gpuaas: Gpuaas, server: Playback) -> None:
    login(gpuaas, server)
    server.on("GET", "/api/v1/projects", Answer(200, samples.page(samples.project("research"))))
    assert gpuaas("project", "use", "nope").code == 4
    assert gpuaas("project", "use", "research").code == 0
    assert json.loads(gpuaas.config.read_text())["accounts"][server.url]["project"] == "research"
    assert json.loads(gpuaas.config.read_text())["accounts"][server.url]["token"] == "gpt_new"
    assert gpuaas("project", "ls").out.splitlines()[1].startswith("*  research")
