"""What doctor says of a host's own firewall, against what the kernel does with packets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from root.conftest import needs

pytestmark = needs("nft", "ip", "nsenter", "unshare")
SCRIPT = Path(__file__).with_name("firewalled.py")
ANSWERS = "ct state established,related accept;"


def site(policy: str, rules: str = "", more: str = "", family: str = "inet", priority: str = "filter") -> str:
    base = f"chain forward {{\n type filter hook forward priority {priority}; policy {policy}; {rules}\n }}"
    return f"table {family} site {{\n {more}\n {base}\n }}"


DOCKER = """table ip filter {
    chain DOCKER-USER { return
 }
    chain FORWARD { type filter hook forward priority filter; policy drop; %s jump DOCKER-USER;
        oifname "docker0" accept; iifname "docker0" accept
    }
}"""
RULES = {
    "nothing": "",
    "another's that lets all pass": site("accept"),
    "only input": site("drop").replace("forward", "input"),
    "of IPv6 alone": site("drop", family="ip6"),
    "a policy": site("drop"),
    "a last rule": site("accept", f"{ANSWERS} counter drop;", priority="5"),
    "a refusal": site("accept", "reject with icmp type admin-prohibited;", family="ip", priority="-5"),
    "what docker does": DOCKER % "",
    "what docker does, with what we say to do": DOCKER % f'iifname "gv*" accept; oifname "gv*" {ANSWERS}',
    "answers alone pass": site("drop", ANSWERS),
    "answers do not": site("drop", 'iifname "gv*" accept;'),
    "others are dropped": site("accept", 'iifname != "gv*" ct state new drop;'),
    "a map": site("drop", "ct state vmap { established : accept, related : accept };"),
    "a map that lets them pass": site(
        "drop", 'ct state vmap { established : accept, invalid : drop }; iifname { "lo", "gv0" } accept;'
    ),
    "a chain that does": site(
        "drop", f"{ANSWERS} jump more;", "chain more { iifname vmap { gv0 : accept, lo : drop }\n }"
    ),
    "a chain that does not": site(
        "drop", f"{ANSWERS} jump more; goto more;", "chain more { meta nfproto ipv4 return; accept\n }"
    ),
}


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[bool, dict[str, object]]]:
    words = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, str(SCRIPT)]
    done = subprocess.run(words, input=json.dumps(RULES), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: dict[str, tuple[bool, dict[str, object]]] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("name", RULES)
def test_doctor_says_what_packets_find(said: dict[str, tuple[bool, dict[str, object]]], name: str) -> None:
    passes, finding = said[name]
    assert finding["ok"] is passes, finding
    if not passes:
        assert "drops" in str(finding["problem"])
        assert not finding["required"]


def test_the_remedy_is_one(said: dict[str, tuple[bool, dict[str, object]]]) -> None:
    blocked = [finding for passes, finding in said.values() if not passes]
    assert len(blocked) >= 6
    for finding in blocked:
        assert finding["after"] is True, finding


def test_both_are_seen(said: dict[str, tuple[bool, dict[str, object]]]) -> None:
    assert {passes for passes, _ in said.values()} == {True, False}
