"""Text of others, for terminals and logs: nothing in it can steer them."""

import re

# C0, DEL and C1 (escape sequences start there), line separators, marks that reorder text, and lone surrogates.
STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: object) -> str:
    """One line of visible characters."""
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], str(text))
