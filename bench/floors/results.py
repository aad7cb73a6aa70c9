"""bench/RESULTS.md: the last run of each bench, one section each."""

import re
from pathlib import Path

_FILE = Path(__file__).parent.parent / "RESULTS.md"
_TITLE = "# What the benches measured last\n"


def record(name: str, text: str) -> None:
    """Replaces the section of this bench and leaves the others alone."""
    old = _FILE.read_text() if _FILE.exists() else _TITLE
    sections = re.split(r"(?m)^(?=## )", old)
    kept = [each for each in sections[1:] if each.partition("\n")[0] != f"## {name}"]
    mine = f"## {name}\n\n{text.strip()}\n"
    _FILE.write_text("\n".join(each.strip() + "\n" for each in [sections[0], *sorted([*kept, mine])]))
