"""Routes: what an org lets single sign-on do."""

from typing import Any

from litestar import Response, get, put

from gpuaas.control.app import oidc_settings as app
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.model.oidc import Settings
from gpuaas.wire import api


@get(
    "/orgs/{org:str}/oidc",
    opt={"action": "org.read"},
    sync_to_thread=True,
    summary="Which addresses become members by single sign-on, and which groups have which role",
)
def show(request: Req, org: Name) -> Response[api.OidcSettingsView]:
    return read(request, lambda tx, caller: _view(app.show(tx, caller, org)))


@put(
    "/orgs/{org:str}/oidc/domains",
    opt={"action": "org.domains"},
    sync_to_thread=True,
    summary="Whose addresses become members of an organisation by single sign-on (platform administrators)",
)
def set_domains(request: Req, org: Name, data: api.OidcDomains) -> Response[api.OidcSettingsView]:
    return mutate(request, lambda tx, caller: Result(_view(app.set_domains(tx, caller, org, data.domains))), data)


@put(
    "/orgs/{org:str}/oidc/groups",
    opt={"action": "org.groups"},
    sync_to_thread=True,
    summary="Which groups of the identity provider have which role in which project; all of them",
)
def set_groups(request: Req, org: Name, data: api.OidcGroups) -> Response[api.OidcSettingsView]:
    wanted = [(item.group, item.project, item.role) for item in data.groups]
    return mutate(request, lambda tx, caller: Result(_view(app.set_groups(tx, caller, org, wanted))), data)


def _view(found: Settings) -> api.OidcSettingsView:
    groups = [api.OidcGroupView(item.group, item.project_id, item.role) for item in found.groups]
    return api.OidcSettingsView(found.org_id, list(found.domains), groups)


ROUTES: list[Any] = [show, set_domains, set_groups]
