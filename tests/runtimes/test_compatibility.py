from gpuaas.runtimes.compatibility import Machine, reasons
from gpuaas.runtimes.library import Library

CUDA = Library().get("pytorch:2.13.0-cu126").requirements
FITTING = Machine("amd64", "nvidia", "570.10", "12.8", "", 64 * 10**9)


def test_what_fits_has_no_reasons() -> None:
    assert reasons(CUDA, FITTING) == []
    assert reasons(Library().get("python:3.11").requirements, Machine(memory_bytes=10**9)) == []


def test_every_reason_is_said() -> None:
    found = reasons(CUDA, Machine("arm64", "amd", "535.9", "12.2", "6.4", 10**9))
    assert [reason.split(", the machine")[0] for reason in found] == [
        "it needs GPUs of nvidia",
        "it needs driver 560.28 or newer",
        "it needs CUDA 12.6 or newer",
        "it needs 2.0 GB of memory",
    ]
    assert reasons(Library().get("vllm").requirements, Machine("arm64", "nvidia", "570", "12.8", "", 10**12)) == [
        "it is made for amd64, the machine is arm64"
    ]


def test_versions_are_numbers_and_silence_is_missing() -> None:
    assert reasons(CUDA, Machine("amd64", "nvidia", "560.3", "12.10", "", 10**12)) == [
        "it needs driver 560.28 or newer, the machine has 560.3"
    ]
    assert len(reasons(CUDA, Machine("amd64", "", "", "", "", 10**12))) == 3


def test_every_declared_gpu_runtime_is_refused_on_a_machine_without() -> None:
    for name in Library().names():
        wanted = Library().get(name.id).requirements
        refused = reasons(wanted, Machine("amd64", memory_bytes=10**12))
        assert bool(refused) == (wanted.gpu_family in ("nvidia", "amd")), name.id
