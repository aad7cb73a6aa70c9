"""Routes: begin in a browser, come back from the provider, bring the code."""

import logging
from typing import Annotated, Any
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import Parameter

from gpuaas.control.app import oidc as app
from gpuaas.control.http import views
from gpuaas.control.http.endpoint import Req, Result, address_of, correlation_of, limiter_of, public, store_of
from gpuaas.control.http.oidc import pages
from gpuaas.control.http.oidc.provider import Provider
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.oidc import Attempt
from gpuaas.wire import api

log = logging.getLogger(__name__)

COOKIE = "gpuaas_oidc"
END = api.END
Text = Annotated[str | None, Parameter(max_length=4096, required=False)]
OurState = Annotated[str | None, Parameter(query="state", max_length=4096, required=False)]
Challenge = Annotated[str, Parameter(pattern=r"^[A-Za-z0-9_-]{43}" + END)]
ClientState = Annotated[str, Parameter(query="state", pattern=r"^[A-Za-z0-9_-]{16,128}" + END)]
# Only a program on the same machine as the browser can be waiting there; any other address would be somebody else's.
Loopback = Annotated[
    str | None,
    Parameter(pattern=r"^http://(127[.]0[.]0[.]1|\[::1\]):[0-9]{1,5}/callback" + END, required=False),
]


@get("/oidc", opt={"action": "oidc.login"}, sync_to_thread=False, summary="Whether single sign-on works here")
def offer(request: Req) -> api.OidcOffer:
    provider: Provider | None = request.app.state.oidc
    if provider is None:
        return api.OidcOffer(False, "", "")
    return api.OidcOffer(True, provider.config.issuer, f"{provider.config.public_url}/oidc/login")


@get("/oidc/login", opt={"action": "oidc.login"}, sync_to_thread=True, include_in_schema=False)
def begin(request: Req, challenge: Challenge, client_state: ClientState, redirect: Loopback = None) -> Response[Any]:
    provider = _provider(request)
    limiter_of(request).admit_login(address_of(request.scope))
    state, cookie = _transact(request, lambda tx: app.begin(tx, redirect, client_state, challenge))
    secure = "; Secure" if provider.config.public_url.startswith("https:") else ""
    age = int(app.BROWSER.total_seconds())
    kept = f"{COOKIE}={cookie}; Path=/oidc; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"
    return _moved(provider.authorization_url(state, cookie), kept)


@get("/oidc/callback", opt={"action": "oidc.login"}, sync_to_thread=True, include_in_schema=False)
def come_back(
    request: Req, ours: OurState = None, code: Text = None, iss: Text = None, error: Text = None
) -> Response[Any]:
    attempt: Attempt | None = None
    try:
        provider = _provider(request)
        cookie = request.cookies.get(COOKIE, "")
        attempt = taken = _transact(request, lambda tx: app.take(tx, ours or "", cookie))
        if error is not None or not code:
            raise _not_signed_in(error)
        proof = provider.prove(code, cookie, iss)  # talks to the provider: in no transaction
        brought = _transact(request, lambda tx: app.finish(tx, taken, proof))
    except Problem as problem:
        log.warning("single sign-on refused: %s %s", problem.code, problem.detail or problem.message)
        if attempt is None or attempt.redirect is None:
            return pages.refused(problem)
        told = {"error": problem.code, "error_description": f"{problem.message} {problem.hint}"}
        return _back(attempt, attempt.redirect, told)
    return pages.code(brought) if attempt.redirect is None else _back(attempt, attempt.redirect, {"code": brought})


@post(
    "/oidc/token",
    opt={"action": "oidc.token"},
    status_code=200,
    sync_to_thread=True,
    summary="Bring the code of a login",
)
def redeem(request: Req, data: api.OidcCode) -> Response[api.IssuedToken]:
    address = address_of(request.scope)
    limiter_of(request).admit_login(address)

    def work(tx: Tx) -> Result:
        found = app.redeem(tx, data.code, data.verifier, address)
        return Result(api.IssuedToken(views.token(found[0]), found[1]) if found else None)

    answered = public(request, work)
    if answered.content == b"null":  # after the commit, so that a code is burnt by the first who brings it
        raise Problem("bad_code", 401, "The code is unknown, used or expired.", "Begin again: `gpuaas login --oidc`.")
    return answered


def _provider(request: Req) -> Provider:
    provider: Provider | None = request.app.state.oidc
    if provider is None:
        raise Problem("no_single_sign_on", 404, "This server has no single sign-on.", "Log in with a password.")
    return provider


def _transact(request: Req, work: Any) -> Any:
    return store_of(request).transact(work, correlation_id=correlation_of(request))


def _not_signed_in(error: str | None) -> Problem:
    said = "".join(c for c in error or "nothing" if c.isalnum() or c == "_")[:40]
    return Problem("provider_refused", 403, f"The identity provider did not sign you in: {said}.", "Begin again.")


def _back(attempt: Attempt, redirect: str, told: dict[str, str]) -> Response[Any]:
    return _moved(
        f"{redirect}?{urlencode({**told, 'state': attempt.client_state})}", f"{COOKIE}=; Path=/oidc; Max-Age=0"
    )


def _moved(url: str, cookie: str) -> Response[Any]:
    headers = {"Location": url, "Set-Cookie": cookie, "Referrer-Policy": "no-referrer"}
    return Response(b"", status_code=302, headers=headers, media_type="text/plain")


ROUTES: list[Any] = [offer, redeem]
BROWSER_ROUTES: list[Any] = [begin, come_back]
