"""The client: one object, a field per resource."""

from collections.abc import Callable
from types import TracebackType

from gpuaas import __version__
from gpuaas.sdk.api import Api, path
from gpuaas.sdk.errors import OperationFailed
from gpuaas.sdk.resources.access import Access
from gpuaas.sdk.resources.allocations import Allocations
from gpuaas.sdk.resources.audit import Audit
from gpuaas.sdk.resources.break_glass import BreakGlass
from gpuaas.sdk.resources.budgets import Budgets
from gpuaas.sdk.resources.events import Events
from gpuaas.sdk.resources.invitations import Invitations
from gpuaas.sdk.resources.keys import Keys
from gpuaas.sdk.resources.members import Members
from gpuaas.sdk.resources.nodes import Nodes
from gpuaas.sdk.resources.offers import Offers
from gpuaas.sdk.resources.oidc import Oidc
from gpuaas.sdk.resources.operations import ENDED, Operations
from gpuaas.sdk.resources.orgs import Orgs
from gpuaas.sdk.resources.prices import Prices
from gpuaas.sdk.resources.projects import Projects
from gpuaas.sdk.resources.quotas import Quotas
from gpuaas.sdk.resources.reservations import Reservations
from gpuaas.sdk.resources.runtimes import Runtimes
from gpuaas.sdk.resources.service_accounts import ServiceAccounts
from gpuaas.sdk.resources.statements import Statements
from gpuaas.sdk.resources.tokens import Tokens
from gpuaas.sdk.resources.usage import Usage
from gpuaas.sdk.resources.users import Users
from gpuaas.sdk.resources.webhooks import Webhooks
from gpuaas.sdk.retry import Retry
from gpuaas.sdk.transport import Transport
from gpuaas.wire.api import DoctorView, Health, IssuedToken, Login, OperationView, Whoami


class Client:
    """A signed-in connection to one server. Safe to share between threads, except for `login`.

    with gpuaas.Client("https://gpu.example.org", token) as client:
        launched = client.allocations.launch("train-1", offer="h100-1")
        client.wait(launched.operations[0])
        print(client.allocations.show("train-1").endpoint)
    """

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retry: Retry | None = None,
        correlation_id: str = "",
    ) -> None:
        """`correlation_id`: sent with every call, for logs and traces; the server makes one up for each otherwise."""
        self._transport = Transport(
            server,
            token,
            timeout_seconds=timeout_seconds,
            retry=retry or Retry(),
            user_agent=f"gpuaas/{__version__}",
            correlation_id=correlation_id,
        )
        self._api = api = Api(self._transport)
        self.access = Access(api)
        self.allocations = Allocations(api)
        self.audit = Audit(api)
        self.budgets = Budgets(api)
        self.break_glass = BreakGlass(api)
        self.events = Events(api)
        self.invitations = Invitations(api)
        self.keys = Keys(api)
        self.members = Members(api)
        self.nodes = Nodes(api)
        self.offers = Offers(api)
        self.oidc = Oidc(api)
        self.operations = Operations(api)
        self.orgs = Orgs(api)
        self.prices = Prices(api)
        self.projects = Projects(api)
        self.quotas = Quotas(api)
        self.reservations = Reservations(api)
        self.runtimes = Runtimes(api)
        self.service_accounts = ServiceAccounts(api)
        self.statements = Statements(api)
        self.tokens = Tokens(api)
        self.usage = Usage(api)
        self.users = Users(api)
        self.webhooks = Webhooks(api)

    @property
    def server(self) -> str:
        return self._transport.server

    def login(self, email: str, password: str) -> IssuedToken:
        """Signs this client in; keep the secret of the answer to sign in later without the password."""
        issued = self._api.post(path("login"), Login(email, password), IssuedToken)
        self._transport.use_token(issued.secret)
        return issued

    def whoami(self) -> Whoami:
        return self._api.get(path("whoami"), Whoami)

    def health(self) -> Health:
        """The process answers."""
        return self._api.get("/healthz", Health)

    def doctor(self) -> DoctorView:
        """What is wrong with the installation, for operators."""
        return self._api.get(path("platform", "doctor"), DoctorView)

    def ready(self) -> Health:
        """The process answers and can work."""
        return self._api.get("/readyz", Health)

    def wait(
        self,
        operation: OperationView | str,
        *,
        timeout_seconds: float | None = None,
        on_change: Callable[[OperationView], None] | None = None,
    ) -> OperationView:
        """Returns the operation when it has succeeded, raises OperationFailed when it ended otherwise."""
        last = operation if isinstance(operation, OperationView) and operation.state in ENDED else None
        if last is None:
            id = operation if isinstance(operation, str) else operation.id
            for last in self.operations.follow(id, timeout_seconds=timeout_seconds):
                if on_change is not None:
                    on_change(last)
        assert last is not None  # follow ends only with the last one
        if last.state != "succeeded":
            raise OperationFailed(last)
        return last

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.server!r})"  # never the token
