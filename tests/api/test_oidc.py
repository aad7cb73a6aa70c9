"""Single sign-on against a real provider: who gets in as whom, and what a liar gets."""

import base64
import hmac
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwk
from sqlalchemy import text

import databases
from api.oidc_provider import Browser, Claims, Front, provider
from api.server import Replica, serve
from api.world import key_line
from gpuaas.control.app import identity as people
from gpuaas.control.app import invitations, keys, oidc_settings, sessions, users
from gpuaas.control.app.oidc import s256
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.config import Oidc
from gpuaas.control.http.oidc.provider import Provider
from gpuaas.control.store import identity, tokens
from gpuaas.control.store.embedded import Embedded
from gpuaas.kit.clock import SystemClock
from gpuaas.model.identity import Caller

API = "/api/v1"
PASSWORD = "correct horse battery"
VERIFIER = "v" * 50
LOOPBACK = "http://127.0.0.1:9/callback"


class Moved(SystemClock):
    """For what the server keeps for a while."""

    ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


class Site:
    """A server that trusts the provider; `example.org` belongs to the org home."""

    def __init__(self, replica: Replica, front: Front, database_url: str) -> None:
        self.store, self.url, self.front = replica.store, replica.url, front
        self.clock = Moved()
        self.config = Oidc(front.url, "gpuaas", replica.url, "a secret of ours")
        replica.app.state.oidc = Provider(self.config, self.clock)
        made = bootstrap(database_url, email="root@example.org", password=PASSWORD, org="home", project="lab")
        self.root = self.store.transact(tokens.caller, made.token)
        self.store.transact(oidc_settings.set_domains, self.root, "home", ["Example.org"])
        self.http = httpx.Client(base_url=replica.url, timeout=30)

    def person(self, subject: str, **claims: Any) -> str:
        self.front.person(subject, **{"email": f"{subject}@example.org", "email_verified": True, **claims})
        return subject

    def sign_in(self, subject: str, redirect: str | None = LOOPBACK) -> httpx.Response:
        """What the browser sees last."""
        browser = Browser(self.url)
        return browser.back(browser.at_provider(browser.begin(s256(VERIFIER), redirect=redirect), subject))

    def redeem(self, code: str, verifier: str = VERIFIER) -> httpx.Response:
        return self.http.post(f"{API}/oidc/token", json={"code": code, "verifier": verifier})

    def log_in(self, subject: str) -> dict[str, Any]:
        """All the way; what whoami says."""
        answer = self.redeem(code_of(self.sign_in(subject)))
        assert answer.status_code == 200, answer.text
        headers = {"Authorization": f"Bearer {answer.json()['secret']}"}
        found: dict[str, Any] = self.http.get(f"{API}/whoami", headers=headers).json()
        return found

    def refused(self, subject: str) -> str:
        return error_of(self.sign_in(subject))

    def sql(self, statement: str, **values: Any) -> list[Any]:
        def work(tx: Any) -> list[Any]:
            found = tx.conn.execute(text(statement), values)
            return list(found) if found.returns_rows else []

        return self.store.transact(work)


def told(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith(LOOPBACK + "?"), answer.headers["location"]
    found = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    assert found["state"] == "s" * 16
    return found


def code_of(answer: httpx.Response) -> str:
    found = told(answer)
    assert "code" in found, found
    return found["code"]


def error_of(answer: httpx.Response) -> str:
    found = told(answer)
    assert found.get("error_description"), found
    assert "code" not in found
    return found["error"]


@pytest.fixture(scope="module")
def real() -> Iterator[Front]:
    with provider() as front:
        yield front


@pytest.fixture(scope="module")
def served(postgres: Embedded, template_database: str, real: Front) -> Iterator[Site]:
    name = f"test_{secrets.token_hex(8)}"
    url = databases.clone(postgres.admin_url, template_database, name)
    with serve(url) as replica:
        yield Site(replica, real, url)
    databases.drop(postgres.admin_url, name)


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    """The provider is honest again after each test."""
    yield served
    served.front.bend, served.front.metadata, served.front.away = None, {}, False
    served.clock.ahead += 7200


def member(site: Site, name: str, **more: Any) -> Caller:
    user = site.store.transact(people.add_user, f"{name}@example.org", name, more.get("password"), None)
    return Caller(user.id, user.email, user.name, None, "tk-test", ("*",))


def test_somebody_new_joins_the_org_that_takes_the_domain(site: Site) -> None:
    site.person("ada", name="Ada Lovelace")
    site.front.proven.clear()
    me = site.log_in("ada")
    assert (me["user"]["email"], me["user"]["name"], me["projects"]) == ("ada@example.org", "Ada Lovelace", [])
    assert [(org["slug"], org["role"]) for org in me["orgs"]] == [("home", "tenant_member")]
    assert site.front.proven == [True], "the code came with its verifier"
    assert site.log_in("ada")["user"]["id"] == me["user"]["id"]
    rows = site.sql("SELECT kind, source FROM tokens WHERE user_id = :id", id=me["user"]["id"])
    assert {(row.kind, row.source) for row in rows} == {("oidc", "127.0.0.1")}
    actions = site.sql("SELECT action FROM audit WHERE object_id = :id", id=me["user"]["id"])
    assert {row.action for row in actions} == {"user.create", "org.join", "session.login"}


def test_who_is_not_let_in(site: Site) -> None:
    site.front.person("eve", email="eve@evil.org", email_verified=True)
    assert site.refused("eve") == "not_invited"
    site.person("mallory", email_verified=False)
    assert site.refused("mallory") == "address_not_verified"
    site.front.person("odd", email="no address", email_verified=True)
    assert site.refused("odd") == "no_address"
    assert site.sql("SELECT 1 FROM users WHERE email LIKE '%eve%' OR email LIKE '%mallory%'") == []


def test_an_account_that_was_there_gets_a_second_way_in(site: Site) -> None:
    bob = member(site, "bob", password=sessions.hash_password(PASSWORD))
    site.person("bob", email="Bob@Example.ORG")
    assert site.log_in("bob")["user"]["id"] == bob.user_id
    answer = site.http.post(f"{API}/login", json={"email": bob.email, "password": PASSWORD})
    assert answer.status_code == 200
    site.person("another-bob", email="bob@example.org")
    assert site.refused("another-bob") == "other_subject", "the address was given to somebody else"


def test_a_disabled_user_is_refused_on_every_step(site: Site) -> None:
    site.person("dora")
    code = code_of(site.sign_in("dora"))
    id = site.sql("SELECT id FROM users WHERE email = 'dora@example.org'")[0].id
    site.store.transact(users.disable, site.root, id, "dora@example.org", "test")
    answer = site.redeem(code)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_code")
    assert site.refused("dora") == "disabled"


def test_who_proves_an_address_takes_over_what_was_made_with_an_invitation(site: Site) -> None:
    """Otherwise whoever invites a stranger's address, and accepts it, waits in the stranger's account."""
    _, secret = site.store.transact(invitations.invite_to_project, site.root, "lab", "zoe@example.org", "editor", 3600)
    hashed = sessions.hash_password(PASSWORD)
    _, shown = site.store.transact(invitations.signup, secret, "Not Zoe", hashed, "192.0.2.1")
    squatter = site.store.transact(tokens.caller, shown)
    site.store.transact(keys.add_key, squatter, "backdoor", key_line())
    site.person("zoe")
    me = site.log_in("zoe")
    assert me["user"]["id"] == squatter.user_id
    assert site.store.transact(tokens.caller, shown) is None
    assert site.http.post(f"{API}/login", json={"email": "zoe@example.org", "password": PASSWORD}).status_code == 401
    assert site.sql("SELECT 1 FROM ssh_keys WHERE user_id = :id", id=squatter.user_id) == []


def test_roles_come_and_go_with_groups(site: Site) -> None:
    wanted = [("ml", "lab", "viewer"), ("leads", "lab", "admin")]
    site.store.transact(oidc_settings.set_groups, site.root, "home", wanted)

    def role(**claims: Any) -> list[str]:
        site.person("grace", **claims)
        return [project["role"] for project in site.log_in("grace")["projects"]]

    assert role() == []
    assert role(groups=["ml"]) == ["viewer"]
    assert role(groups=["ml", "leads", 7]) == ["admin"]
    assert role(groups="leads") == [], "not a list: no groups"
    site.store.transact(people.set_member, site.root, "lab", "grace@example.org", "editor")
    assert role(groups=["leads"]) == ["editor"], "what an admin gave by hand stays"
    assert role(groups=[]) == ["editor"]
    site.store.transact(oidc_settings.set_groups, site.root, "home", [])


def none_signed(front: Front, claims: Claims) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def with_public_key_as_secret(front: Front, claims: Claims) -> str:
    """By hand: no library lets one make it any more."""
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "kid": "one"}, claims)]
    signed = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    found = hmac.digest(front.key.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(found).decode().rstrip('=')}"


def by_another_key(front: Front, claims: Claims) -> str:
    return front.signed(claims, jwk.RSAKey.generate_key(2048, parameters={"kid": "one"}))


LIES: dict[str, Any] = {
    "wrong nonce": {"nonce": "another"},
    "no nonce": {"nonce": None},
    "other audience": {"aud": ["somebody-else"]},
    "several audiences, none said": {"aud": ["gpuaas", "somebody-else"]},
    "for another party": {"aud": ["gpuaas", "somebody-else"], "azp": "somebody-else"},
    "other issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "expired": {"exp": int(time.time()) - 3600, "iat": int(time.time()) - 7200},
    "never expires": {"exp": None},
    "from the future": {"iat": int(time.time()) + 3600, "exp": int(time.time()) + 7200},
    "of another access token": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    "nobody": {"sub": None},
    "unsigned": none_signed,
    "signed with the public key": with_public_key_as_secret,
    "signed by another key": by_another_key,
    "not a token": lambda front, claims: "x.y.z",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(site: Site, lie: str) -> None:
    site.person("liar")
    bent = LIES[lie]

    def bend(claims: Claims) -> str:
        if callable(bent):
            return str(bent(site.front, claims))
        return site.front.signed({name: value for name, value in {**claims, **bent}.items() if value is not None})

    site.front.bend = bend
    assert site.refused("liar") == "bad_proof"
    assert site.sql("SELECT 1 FROM users WHERE email = 'liar@example.org'") == []


def test_what_the_front_door_signs_itself_is_believed(site: Site) -> None:
    """Or the lies above were refused for the wrong reason."""
    site.person("honest")
    site.front.bend = site.front.signed
    assert site.log_in("honest")["user"]["email"] == "honest@example.org"


def test_new_keys_are_fetched_but_not_all_the_time(site: Site) -> None:
    site.person("rita")
    site.front.bend = site.front.signed
    site.log_in("rita")
    site.front.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "two"})
    assert site.refused("rita") == "bad_proof", "they were fetched a moment ago"
    site.clock.ahead += 11
    assert site.log_in("rita")["user"]["email"] == "rita@example.org"


def test_an_address_that_only_userinfo_has(site: Site) -> None:
    site.person("uma")

    def without(claims: Claims) -> str:
        return site.front.signed({name: value for name, value in claims.items() if not name.startswith("email")})

    site.front.bend = without
    assert site.log_in("uma")["user"]["email"] == "uma@example.org"
    site.front.bend = lambda claims: without({**claims, "sub": "somebody else"})
    assert site.refused("uma") == "bad_proof", "userinfo speaks of another subject"


def test_a_callback_works_once_and_only_where_it_was_begun(site: Site) -> None:
    site.person("rob")
    browser, other = Browser(site.url), Browser(site.url)
    url = browser.at_provider(browser.begin(s256(VERIFIER), redirect=LOOPBACK), "rob")
    other.begin(s256(VERIFIER))  # has a cookie too, of another login
    for stranger in (other, Browser(site.url)):
        answer = stranger.back(url)
        assert answer.status_code == 403
        assert "bad_state" in answer.text
        assert "location" not in answer.headers
    code = code_of(browser.back(url))
    replayed = browser.back(url)
    assert (replayed.status_code, "bad_state" in replayed.text) == (403, True)
    assert site.redeem(code).status_code == 200
    assert site.redeem(code).json()["code"] == "bad_code"


def test_a_stolen_code_is_worth_nothing_without_its_verifier(site: Site) -> None:
    site.person("tom")
    code = code_of(site.sign_in("tom"))
    assert site.redeem(code, "w" * 50).json()["code"] == "bad_code"
    assert site.redeem(code).json()["code"] == "bad_code", "and burnt by whoever tried"
    code = code_of(site.sign_in("tom"))
    site.sql("UPDATE oidc_logins SET expires_at = now() - interval '1 second' WHERE code_hash IS NOT NULL")
    assert site.redeem(code).json()["code"] == "bad_code"


def test_a_mixed_up_issuer(site: Site) -> None:
    site.person("max")
    browser = Browser(site.url)
    url = browser.at_provider(browser.begin(s256(VERIFIER), redirect=LOOPBACK), "max")
    assert error_of(browser.back(f"{url}&iss=https%3A%2F%2Fevil.example")) == "bad_proof"
    site.clock.ahead += 7200
    site.front.metadata = {"authorization_response_iss_parameter_supported": True}
    assert site.refused("max") == "bad_proof", "it promised to say who it is, and did not"
    site.clock.ahead += 7200
    site.front.metadata = {"issuer": "https://evil.example"}
    answer = site.http.get("/oidc/login", params={"challenge": s256(VERIFIER), "state": "s" * 16})
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    site.clock.ahead += 7200
    site.front.metadata = {"token_endpoint": "http://192.0.2.1/token"}
    assert site.refused("max") == "provider_unavailable", "secrets are sent over TLS, or not at all"


def test_the_provider_says_no_or_nothing(site: Site) -> None:
    browser = Browser(site.url)
    asked = parse_qs(urlsplit(browser.begin(s256(VERIFIER), redirect=LOOPBACK)).query)
    answer = browser.back(f"{site.url}/oidc/callback?error=access_denied%0d%0aX: y&state={asked['state'][0]}")
    assert error_of(answer) == "provider_refused"
    site.front.away = True
    site.clock.ahead += 7200
    answer = site.http.get("/oidc/login", params={"challenge": s256(VERIFIER), "state": "s" * 16})
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "redirect",
    [
        "https://evil.example/callback",
        "http://127.0.0.1.evil.example:80/callback",
        "http://127.0.0.1:80@evil.example/callback",
        "http://127.0.0.1:80/callback@evil.example",
        "http://evil.example#127.0.0.1:80/callback",
        "http://127.0.0.1:80/callback?x=1",
        "http://127.0.0.1:80/elsewhere",
        "http://127.0.0.1/callback",
        "http://localhost:80/callback",
        "http://127.0.0.1:80/callback\n",
        "//evil.example/callback",
        "javascript:alert(1)",
    ],
)
def test_a_browser_is_sent_nowhere_else(site: Site, redirect: str) -> None:
    answer = site.http.get("/oidc/login", params={"challenge": s256(VERIFIER), "state": "s" * 16, "redirect": redirect})
    assert answer.status_code == 422
    assert "location" not in answer.headers


def test_what_is_kept_opens_nothing(site: Site) -> None:
    site.person("kim")
    browser = Browser(site.url)
    asked = browser.begin(s256(VERIFIER), redirect=LOOPBACK)
    code = code_of(browser.back(browser.at_provider(asked, "kim")))
    query = {name: values[0] for name, values in parse_qs(urlsplit(asked).query).items()}
    assert query["code_challenge_method"] == "S256"
    assert not {"cookie", "redirect"} & set(query)
    kept = str(site.sql("SELECT * FROM oidc_logins"))
    for secret in (code, query["state"], *browser.http.cookies.values(), query["nonce"], query["code_challenge"]):
        assert secret not in kept
    assert s256(VERIFIER) in kept, "the challenge of the CLI is no secret"


def test_the_page_for_pasting_shows_a_code_and_runs_nothing(site: Site) -> None:
    site.person("pat")
    answer = site.sign_in("pat", redirect=None)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    found = re.search(r"gpc_[A-Za-z0-9_-]+", answer.text)
    assert found
    assert site.redeem(found[0]).status_code == 200


def test_without_a_provider_it_says_so(database_url: str) -> None:
    with serve(database_url) as replica, httpx.Client(base_url=replica.url) as http:
        assert http.get(f"{API}/oidc").json()["enabled"] is False
        answer = http.get("/oidc/login", params={"challenge": s256(VERIFIER), "state": "s" * 16})
        assert (answer.status_code, answer.json()["code"]) == (404, "no_single_sign_on")


BROWSER = """
import sys
sys.path[:0] = {path!r}
import httpx
from api.oidc_provider import Browser
url = sys.argv[1]
browser = Browser(url.partition("/oidc/")[0])
first = browser.http.get(url)
last = browser.back(browser.at_provider(first.headers["location"], {subject!r}))
print(last.text) if last.status_code == 200 else browser.http.get(last.headers["location"])
"""


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    script = tmp_path / "browser.py"
    script.write_text(BROWSER.format(path=[str(Path(__file__).parents[1])], subject="cli"))
    return script


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), **more}


def gpuaas(site: Site, tmp_path: Path, *arguments: str, **more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "gpuaas.cli.main", *arguments]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=environment(tmp_path, **more), text=True, **pipes)


def test_the_cli_waits_for_the_browser(site: Site, tmp_path: Path, browser: Path) -> None:
    site.person("cli")
    opened = f"{sys.executable} {browser} %s"
    running = gpuaas(site, tmp_path, "login", site.url, "--oidc", BROWSER=opened)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "as cli@example.org" in out
    assert "gpc_" not in out + err
    out, _ = gpuaas(site, tmp_path, "whoami", "--json").communicate(timeout=60)
    assert json.loads(out)["user"]["email"] == "cli@example.org"


def test_the_cli_takes_a_code_that_is_pasted(site: Site, tmp_path: Path, browser: Path) -> None:
    site.person("cli")
    running = gpuaas(site, tmp_path, "login", site.url, "--oidc", "--no-browser", PYTHONUNBUFFERED="1")
    assert running.stderr is not None
    url = ""
    while not url.startswith("http"):
        url = running.stderr.readline().strip()
    page = subprocess.run([sys.executable, str(browser), url], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"gpc_[A-Za-z0-9_-]+", page)
    assert found
    out, err = running.communicate(found[0] + "\n", timeout=60)
    assert running.returncode == 0, err
    assert "as cli@example.org" in out


def test_settings_are_for_those_who_may(site: Site) -> None:
    settings = site.store.transact(oidc_settings.show, site.root, "home")
    assert settings.domains == ("example.org",)
    org = site.store.transact(identity.org, "home")
    assert settings.org_id == org.id
    from gpuaas.kit.errors import Problem

    for domains in (["x.service"], ["service"]):
        with pytest.raises(Problem, match="service accounts"):
            site.store.transact(oidc_settings.set_domains, site.root, "home", domains)
    with pytest.raises(Problem, match="no project"):
        site.store.transact(oidc_settings.set_groups, site.root, "home", [("ml", "elsewhere", "viewer")])
