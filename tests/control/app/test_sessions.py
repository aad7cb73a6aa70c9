"""Passwords."""

from argon2 import extract_parameters

from gpuaas.control.app import sessions


def test_whoever_does_not_exist_is_checked_as_slowly_as_everybody() -> None:
    assert extract_parameters(sessions._NOBODY) == extract_parameters(sessions.hash_password("any other password"))
