import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.kit.ids import Ids, is_id


def test_new_ids_are_ids_of_their_kind_and_of_no_other() -> None:
    made = {Ids().new("al") for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_id(text, "al") and not is_id(text, "no") for text in made)


def test_a_seed_repeats_itself() -> None:
    first, second = Ids(random.Random(7)), Ids(random.Random(7))
    assert [first.new("al"), first.secret()] == [second.new("al"), second.secret()]
    assert first.new("al") != first.new("al")


def test_a_secret_carries_256_bits_and_is_safe_in_a_url() -> None:
    secret = Ids().secret()
    assert len(secret) == 43
    assert secret.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text", ["", "al-", "al-aaaaaaaaaaaaaaa", "al-aaaaaaaaaaaaaaaaa", "AL-aaaaaaaaaaaaaaaa", "al-aaaaaaaaaaaaaaa1"]
)
def test_near_misses_are_no_ids(text: str) -> None:
    assert not is_id(text, "al")


def test_a_line_end_is_not_part_of_an_id() -> None:
    assert not is_id("al-aaaaaaaaaaaaaaaa\n", "al")


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert is_id(text, "al") in (True, False)
