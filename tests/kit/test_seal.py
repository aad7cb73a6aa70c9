import os
import stat
from pathlib import Path

import pytest

from gpuaas.kit.seal import KEY_BYTES, Seal, key_in, own_key

KEY = bytes(range(KEY_BYTES))


def test_it_is_read_again_where_it_belongs_and_nowhere_else() -> None:
    seal = Seal(KEY)
    kept = seal.close("whs_secret", "wh-one")
    assert "secret" not in kept
    assert seal.open(kept, "wh-one") == "whs_secret"
    assert seal.open(kept, "wh-other") is None
    assert Seal(KEY[::-1]).open(kept, "wh-one") is None
    assert Seal().open(kept, "wh-one") is None
    assert seal.close("whs_secret", "wh-one") != kept


def test_what_somebody_has_changed_is_not_read() -> None:
    seal = Seal(KEY)
    kept = seal.close("whs_secret", "wh-one")
    other = "B" if kept[12] == "A" else "A"
    for changed in (kept[:-8], kept[:12] + other + kept[13:], "sealed:1:", "sealed:1:é", kept + "AAAA"):
        assert seal.open(changed, "wh-one") is None


def test_without_a_key_nothing_is_sealed_and_what_was_not_stays_readable() -> None:
    assert Seal().close("whs_secret", "wh-one") == "whs_secret"
    assert Seal(KEY).open("whs_secret", "wh-one") == "whs_secret"


def test_keys_in_files(tmp_path: Path) -> None:
    made = own_key(tmp_path / "key")
    assert own_key(tmp_path / "key") == key_in(tmp_path / "key") == made
    assert stat.S_IMODE(os.stat(tmp_path / "key").st_mode) == 0o600
    for wrong in ("", "00" * 31, "zz" * 32, "é"):
        (tmp_path / "wrong").write_text(wrong)
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            key_in(tmp_path / "wrong")
    with pytest.raises(ValueError, match="32 bytes"):
        Seal(b"short")
