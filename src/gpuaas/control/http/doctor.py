"""Route: is this installation well?"""

import shutil
from typing import Any

from litestar import Response, get

from gpuaas import __version__
from gpuaas.control.app import doctor
from gpuaas.control.http.endpoint import Req, read, store_of
from gpuaas.control.store import image_places
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.kit.clock import SystemClock
from gpuaas.model.finding import FAILURE
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@get(
    "/platform/doctor",
    opt={"action": "platform.doctor"},
    sync_to_thread=True,
    summary="What is wrong with this installation, and what to do about it",
)
def examine(request: Req) -> Response[api.DoctorView]:
    store = store_of(request)
    process = _process(request, store)

    def work(tx: Tx, caller: Caller) -> api.DoctorView:
        found = doctor.examine(tx, caller, process, SystemClock(), store.clock_agrees)
        items = [api.DoctorFinding(one.name, one.level, one.value, one.problem, one.remedy) for one in found]
        return api.DoctorView(all(one.level != FAILURE for one in found), items)

    return read(request, work)


def _process(request: Req, store: Store) -> doctor.Process:
    state = request.app.state
    ages = {labels[0]: age for labels, age in store.meters.ages("sweep_age_seconds").items()}
    # A server whose database is elsewhere has no need to make its directory.
    there = next(path for path in (state.state_dir, *state.state_dir.absolute().parents) if path.exists())
    disk, connections = shutil.disk_usage(there), store.connections()
    return doctor.Process(
        version=__version__,
        advertise_url=state.streams.advertise_url,
        sweeps={name: (every, ages.get(name)) for name, every in state.sweeps.items()},
        disk_path=str(there),
        disk_percent=100 * disk.used / (disk.used + disk.free),
        pool_size=connections["most"],
        pool_used=connections["in_use"] + 1,  # the one that will look
        has_image=lambda bundle: image_places.of_bundle(state.images, bundle).complete(bundle.digest),
    )


ROUTES: list[Any] = [examine]
