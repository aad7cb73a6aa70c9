"""Projects."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewProject, ProjectNetwork, ProjectPage, ProjectView


class Projects:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[ProjectView]:
        """Those that you see, with your role in each."""
        return self._api.pages(path("projects"), ProjectPage)

    def create(self, slug: str, name: str | None = None, *, org: str | None = None) -> ProjectView:
        """`org` may be left out by a member of one."""
        return self._api.post(path("projects"), NewProject(slug, name or slug, org), ProjectView)

    def set_network(self, project: str, *, open: bool) -> ProjectView:
        """Open: its machines on one node may talk to each other. Each follows when it is launched or restarted."""
        return self._api.put(path("projects", project, "network"), ProjectNetwork(open), ProjectView)
