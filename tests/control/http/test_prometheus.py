"""The text format, for names that try to break out of it."""

import re

from gpuaas.control.app.metrics import Fleet
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
