import pytest

from gpuaas.node.servers import MOST_MET, Servers

ONE, TWO, THREE = "https://one.example.org", "https://two.example.org", "http://127.0.0.1:8000"


def test_one_is_stayed_with() -> None:
    servers = Servers(f"{ONE}/")
    servers.failed(ONE)
    assert (servers.url, len(servers)) == (ONE, 1)


def test_the_next_is_asked_when_one_does_not_answer() -> None:
    servers = Servers(f"{ONE}, {TWO}/,{THREE}")
    assert (servers.url, servers.websocket, servers.is_here) == (ONE, "wss://one.example.org", False)
    servers.failed(ONE)
    assert servers.url == TWO
    servers.failed(ONE)  # somebody else, who is late
    assert servers.url == TWO
    servers.failed(TWO)
    assert (servers.websocket, servers.is_here) == ("ws://127.0.0.1:8000", True)
    servers.failed(THREE)
    assert servers.url == ONE


def test_all_that_are_known_have_a_name_and_a_port() -> None:
    servers = Servers(f"{ONE},{THREE}")
    assert servers.ends == {("one.example.org", 443), ("127.0.0.1", 8000)}
    servers.met("https://[2001:db8::7]:7070")
    assert ("2001:db8::7", 7070) in servers.ends
    for number in range(200):
        servers.met(f"http://10.0.0.{number}")
        servers.met(f"http://10.0.0.{number}")
    assert len(servers.ends) == 2 + MOST_MET
    assert ("one.example.org", 443) in servers.ends
    with pytest.raises(ValueError, match="Port"):
        servers.met("https://one.example.org:x")


@pytest.mark.parametrize("urls", [f"{ONE},two.example.org", f"{ONE},ftp://x", "https://:80", ",", ""])
def test_every_one_is_looked_at(urls: str) -> None:
    with pytest.raises(ValueError, match="address of a server"):
        Servers(urls)
