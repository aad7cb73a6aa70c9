"""Input that cannot be used, found by us and not by click: says what to do instead of repeating the usage."""

import click


class Invalid(click.ClickException):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
