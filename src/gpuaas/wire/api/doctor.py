"""How an installation is."""

from gpuaas.wire.api.base import Out


class DoctorFinding(Out, frozen=True):
    """`level`: ok, warning or failure. `problem` and `remedy` are empty when it is ok."""

    name: str
    level: str
    value: str
    problem: str
    remedy: str


class DoctorView(Out, frozen=True):
    """As seen by the server that answered."""

    ok: bool
    findings: list[DoctorFinding]
