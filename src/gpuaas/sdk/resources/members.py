"""Who works in a project."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import MemberPage, MemberRole, MemberView


class Members:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str) -> Iterator[MemberView]:
        return self._api.pages(path("projects", project, "members"), MemberPage)

    def set(self, project: str, user: str, role: str) -> MemberView:
        """Adds a member or changes the role: viewer, editor or admin. `user` is an id or an address."""
        return self._api.put(path("projects", project, "members", user), MemberRole(role), MemberView)

    def remove(self, project: str, user: str) -> None:
        self._api.delete(path("projects", project, "members", user))
