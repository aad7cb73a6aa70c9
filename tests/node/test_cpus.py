"""Which CPUs a machine gets."""

from gpuaas.node.host import cpus

EIGHT = range(8)


def test_own_ones_while_there_are_enough() -> None:
    first = cpus.choose(2, near=(), taken=(), online=EIGHT)
    second = cpus.choose(2, near=(), taken=cpus.own(first, EIGHT), online=EIGHT)
    assert (first, second) == ("0,1", "2,3")


def test_all_of_them_when_there_are_not() -> None:
    everything = "0,1,2,3,4,5,6,7"
    assert cpus.choose(8, near=(), taken=(), online=EIGHT) == everything
    assert cpus.choose(3, near=(), taken=range(6), online=EIGHT) == everything
    assert cpus.own(everything, EIGHT) == []


def test_a_cpuset_as_the_kernel_writes_it() -> None:
    assert cpus.parse("0-2,5\n") == [0, 1, 2, 5]
    assert cpus.parse("") == []
