"""The identity provider: where it sends people, and whether what it says about them holds.

The nonce and the PKCE verifier are derived from the cookie of the browser: nobody else can finish what it began, and
there is nothing to keep. Authlib is imported with the first login: a server without single sign-on does not carry it.
"""

import base64
import re
import threading
from typing import Any
from urllib.parse import quote, urlencode

from gpuaas.control.app.oidc import s256
from gpuaas.control.config import Oidc
from gpuaas.control.http.oidc.fetch import fetch, trustworthy, unavailable
from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import Problem
from gpuaas.model.oidc import Proof

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
LEEWAY_SECONDS = 60
METADATA_SECONDS, KEYS_SECONDS, AGAIN_SECONDS = 3600.0, 600.0, 10.0
ADDRESS = re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,189}")
MOST_GROUPS = 1000


class Provider:
    def __init__(self, config: Oidc, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}

    @property
    def callback(self) -> str:
        return f"{self.config.public_url}/oidc/callback"

    def authorization_url(self, state: str, cookie: str) -> str:
        asked = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": self.callback,
            "scope": self.config.scopes,
            "state": state,
            "nonce": _derived("nonce", cookie),
            "code_challenge": s256(_derived("verifier", cookie)),
            "code_challenge_method": "S256",
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def prove(self, code: str, cookie: str, said_issuer: str | None) -> Proof:
        """Who it was that signed in. Every doubt is a refusal."""
        self._same_issuer(said_issuer)
        granted = self._exchange(code, _derived("verifier", cookie))
        claims = self._claims(granted, _derived("nonce", cookie))
        if "email" not in claims:
            claims = {**self._userinfo(granted, claims["sub"]), **claims}
        return self._proof(claims)

    def _same_issuer(self, said: str | None) -> None:
        """RFC 9207: an answer of another provider is not sent to ours, nor ours to another."""
        promised = self._metadata().get("authorization_response_iss_parameter_supported") is True
        if said != self.config.issuer and (said is not None or promised):
            raise _doubt(f"the answer came from {said!r}")

    def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.callback,
            "code_verifier": verifier,
            "client_id": self.config.client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.config.client_secret:
            pair = f"{quote(self.config.client_id, safe='')}:{quote(self.config.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, found = fetch("POST", self._endpoint("token_endpoint"), headers, urlencode(form).encode())
        if status >= 500:
            raise unavailable(f"the token endpoint answered {status}")
        if status != 200 or not isinstance(found, dict) or not isinstance(found.get("id_token"), str):
            raise _doubt(f"the code was not accepted: {status} {str(found)[:200]}")
        return found

    def _claims(self, granted: dict[str, Any], nonce: str) -> dict[str, Any]:
        from authlib.oidc.core.claims import CodeIDToken
        from joserfc.errors import JoseError

        must = {"iss": self.config.issuer, "aud": self.config.client_id}
        options = {name: {"essential": True, "value": value} for name, value in must.items()}
        access_token = granted.get("access_token")
        params = {"nonce": nonce, "client_id": self.config.client_id, "access_token": access_token}
        try:
            token = self._verified(granted["id_token"])
            claims = CodeIDToken(token.claims, token.header, options, params)
            claims.validate(now=int(self._clock.now().timestamp()), leeway=LEEWAY_SECONDS)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _doubt(f"the ID token does not hold: {type(error).__name__} {error}") from error
        if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
            raise _doubt("no usable subject")
        return dict(claims)

    def _verified(self, id_token: str) -> Any:
        """A key that is not known may be new: the provider is asked again, but not all the time."""
        from joserfc import jwk, jwt
        from joserfc.errors import JoseError

        asked_at, keys = self._cached("jwks_uri", KEYS_SECONDS)
        try:
            return jwt.decode(id_token, jwk.KeySet.import_key_set(keys), algorithms=ALGORITHMS)
        except (JoseError, ValueError):
            if self._clock.boottime() - asked_at < AGAIN_SECONDS:
                raise
        _, keys = self._cached("jwks_uri", 0.0)
        return jwt.decode(id_token, jwk.KeySet.import_key_set(keys), algorithms=ALGORITHMS)

    def _userinfo(self, granted: dict[str, Any], subject: str) -> dict[str, Any]:
        """For providers that do not put the address into the ID token. The subject must be the same one."""
        headers = {"Authorization": f"Bearer {granted.get('access_token')}"}
        status, found = fetch("GET", self._endpoint("userinfo_endpoint"), headers)
        if status != 200 or not isinstance(found, dict) or found.get("sub") != subject:
            raise _doubt("the provider says nothing usable about its user")
        return found

    def _proof(self, claims: dict[str, Any]) -> Proof:
        email, verified = claims.get("email"), claims.get("email_verified")
        if not isinstance(email, str) or not ADDRESS.fullmatch(email):
            raise _refused("no_address", "The identity provider gave no usable e-mail address.")
        if verified is not True and verified != "true":
            raise _refused("address_not_verified", f"The identity provider has not verified the address {email}.")
        name = claims.get("name")
        shown = "".join(c for c in name if c.isprintable()).strip()[:120] if isinstance(name, str) else ""
        groups = claims.get(self.config.groups_claim)
        named = [item for item in groups if isinstance(item, str)] if isinstance(groups, list) else []
        return Proof(self.config.issuer, claims["sub"], email.lower(), shown or email, frozenset(named[:MOST_GROUPS]))

    def _endpoint(self, name: str) -> str:
        found = self._metadata().get(name)
        if not isinstance(found, str) or not trustworthy(found):
            raise unavailable(f"its metadata has no usable {name}")
        return found

    def _metadata(self) -> dict[str, Any]:
        _, found = self._cached("metadata", METADATA_SECONDS)
        if not isinstance(found, dict) or found.get("issuer") != self.config.issuer:
            self._kept.pop("metadata", None)
            raise unavailable(f"the metadata is not that of {self.config.issuer}")
        return found

    def _cached(self, name: str, seconds: float) -> tuple[float, Any]:
        """When it was fetched, and what it is."""
        now = self._clock.boottime()
        kept = self._kept.get(name)
        if kept is not None and now - kept[0] < seconds:
            return kept
        at_issuer = f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration"
        url = at_issuer if name == "metadata" else self._endpoint(name)
        status, found = fetch("GET", url)
        if status != 200:
            raise unavailable(f"{url} answered {status}")
        with self._lock:
            self._kept[name] = (now, found)
        return now, found


def _derived(purpose: str, cookie: str) -> str:
    return s256(f"gpuaas oidc {purpose} {cookie}")


def _doubt(detail: str) -> Problem:
    return Problem(
        "bad_proof",
        403,
        "What the identity provider answered does not prove who you are.",
        "Begin again; if it stays like this, tell your operator.",
        detail=detail,
    )


def _refused(code: str, message: str) -> Problem:
    return Problem(code, 403, message, "Change it at the identity provider, then log in again.")
