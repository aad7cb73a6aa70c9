"""Projects."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import LeasePolicyRequest, LeasePolicyView, NewProject, ProjectNetwork, ProjectPage, ProjectView


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

    def lease_policy(self, project: str) -> LeasePolicyView:
        """How long its machines may stay."""
        return self._api.get(path("projects", project, "lease-policy"), LeasePolicyView)

    def set_lease_policy(
        self,
        project: str,
        *,
        idle_seconds: int | None = None,
        idle_gpu_percent: int = 5,
        max_duration_seconds: int | None = None,
    ) -> LeasePolicyView:
        """For its admins. The whole policy: what is left out is not limited."""
        body = LeasePolicyRequest(idle_seconds, idle_gpu_percent, max_duration_seconds)
        return self._api.put(path("projects", project, "lease-policy"), body, LeasePolicyView)
