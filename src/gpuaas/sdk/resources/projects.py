"""Projects."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewProject, ProjectPage, ProjectView


class Projects:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[ProjectView]:
        """Those that you see, with your role in each."""
        return self._api.pages(path("projects"), ProjectPage)

    def create(self, slug: str, name: str | None = None, *, org: str | None = None) -> ProjectView:
        """`org` may be left out by a member of one."""
        return self._api.post(path("projects"), NewProject(slug, name or slug, org), ProjectView)
