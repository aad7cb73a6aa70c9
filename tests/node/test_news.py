"""News that waits for an agent."""

from pathlib import Path

from gpuaas.node.host.interface import News
from gpuaas.node.host.supervisor import news

ID = "al-" + "a" * 16


def test_it_is_told_until_it_is_dropped(tmp_path: Path) -> None:
    news.put(tmp_path, ID, "s2", "session.opened", 2.0, {"user_id": "us-1"})
    news.put(tmp_path, ID, "s1", "session.closed", 1.0, {"reason": "logged out"})
    news.put(tmp_path, ID, "s1", "session.opened", 1.0, {"user_id": "us-1"})
    told = news.taken(tmp_path)
    assert [(each.kind, each.data["session"]) for each in told] == [
        ("session.opened", "s1"),
        ("session.closed", "s1"),
        ("session.opened", "s2"),
    ]
    assert news.taken(tmp_path) == told
    news.drop(tmp_path, told[:2])
    assert news.taken(tmp_path) == told[2:]
    news.drop(tmp_path, told)
    assert list(tmp_path.iterdir()) == []


def test_the_same_news_is_one(tmp_path: Path) -> None:
    for _ in range(2):
        news.put(tmp_path, ID, "s1", "session.opened", 1.0, {})
    assert [each.key for each in news.taken(tmp_path)] == [f"{ID}.s1.session.opened"]


def test_what_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "torn.news").write_text('{"kind": "se')
    (tmp_path / ".half").write_text("")
    assert news.taken(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == [".half"]
    assert news.taken(tmp_path / "nowhere") == []
    news.drop(tmp_path, [News("gone", "session.opened", ID, 0.0, {})])
