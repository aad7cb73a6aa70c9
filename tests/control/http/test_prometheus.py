"""The text format, for names that try to break out of it."""

import re

from control.cluster import Cluster
from gpuaas.control.app import slots
from gpuaas.control.app.metrics import Fleet, whole_fleet
from gpuaas.control.http.prometheus import exposition
from gpuaas.control.store.fleet import Measured
from gpuaas.model.sample import GpuUse
from model.test_metrics import at

LINE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)*\})? -?[0-9.e+-]+')


def test_every_line_is_one_of_the_format() -> None:
    gpu = GpuUse("GPU-1", 12.5, 1024, None, None, 3e2, 'says "hot"\n')
    measured = Measured('a"b\\c\nd', "acme", "lab", "n1", at(0, cpu_seconds=1e-9, memory_bytes=2**53, gpus=(gpu,)))
    text = exposition(Fleet({"ready": 1}, 1, {}, {}, [measured]))
    assert text.endswith("\n")
    wrong = [line for line in text.splitlines() if not line.startswith("# ") and not LINE.fullmatch(line)]
    assert not wrong
    assert 'name="a\\"b\\\\c\\nd"' in text
    assert "gpuaas_allocation_gpu_memory_used_bytes" in text
    assert "gpuaas_allocation_gpu_trouble" in text
    assert "gpuaas_allocation_gpu_temperature_celsius{" not in text, "what a GPU does not tell is left out"


def test_slots_by_model_and_what_becomes_of_them(cluster: Cluster) -> None:
    agent, lost = cluster.agent("one", gpus=4), cluster.agent("two", gpus=2)
    held, leaving = cluster.launch("held"), cluster.launch("leaving")
    assert {cluster.allocation(id).node_id for id in (held, leaving)} == {lost.node_id}, "the fullest that fits"
    for each in (agent, lost):
        each.settle()
    cluster.store.transact(slots.drain, cluster.caller, "one", "gpu-3", "a new GPU", None)
    third = cluster.launch("third")
    cluster.release(leaving)
    text = exposition(cluster.store.transact(whole_fleet))
    found = dict(re.findall(r'gpuaas_slots_in_use\{gpu_model="H100",use="([a-z]+)"\} (\d+)', text))
    assert found == {"free": "2", "claimed": "2", "scrubbing": "1", "drained": "1", "away": "0"}
    cluster.release(third)
    agent.settle()
    agent.report(inventory=agent.inventory(ready=False, reason="no driver"))
    text = exposition(cluster.store.transact(whole_fleet))
    found = dict(re.findall(r'gpuaas_slots_in_use\{gpu_model="H100",use="([a-z]+)"\} (\d+)', text))
    assert found == {"free": "0", "claimed": "1", "scrubbing": "1", "drained": "1", "away": "3"}
