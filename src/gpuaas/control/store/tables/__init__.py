"""The schema. What must never be true at once is refused here, by the database, not by code that remembers to check."""

from gpuaas.control.store.tables.allocations import *
from gpuaas.control.store.tables.base import *
from gpuaas.control.store.tables.break_glass import *
from gpuaas.control.store.tables.capacity import *
from gpuaas.control.store.tables.drains import *
from gpuaas.control.store.tables.history import *
from gpuaas.control.store.tables.identity import *
from gpuaas.control.store.tables.invitations import *
from gpuaas.control.store.tables.leases import *
from gpuaas.control.store.tables.nodes import *
from gpuaas.control.store.tables.oidc import *
from gpuaas.control.store.tables.preemptions import *
from gpuaas.control.store.tables.queue import *
from gpuaas.control.store.tables.quotas import *
from gpuaas.control.store.tables.reservations import *
from gpuaas.control.store.tables.runtimes import *
from gpuaas.control.store.tables.usage import *
from gpuaas.control.store.tables.webhooks import *
