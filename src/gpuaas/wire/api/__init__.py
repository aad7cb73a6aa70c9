"""The HTTP API: what comes in and what goes out. Unknown fields are refused, every number and text is bounded."""

from gpuaas.wire.api.allocations import *
from gpuaas.wire.api.base import *
from gpuaas.wire.api.break_glass import *
from gpuaas.wire.api.doctor import *
from gpuaas.wire.api.fleet import *
from gpuaas.wire.api.history import *
from gpuaas.wire.api.identity import *
from gpuaas.wire.api.invitations import *
from gpuaas.wire.api.leases import *
from gpuaas.wire.api.oidc import *
from gpuaas.wire.api.queue import *
from gpuaas.wire.api.quotas import *
from gpuaas.wire.api.reservations import *
from gpuaas.wire.api.runtimes import *
from gpuaas.wire.api.service_accounts import *
from gpuaas.wire.api.usage import *
from gpuaas.wire.api.users import *
from gpuaas.wire.api.webhooks import *
