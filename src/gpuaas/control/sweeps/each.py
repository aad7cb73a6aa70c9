"""One after the other, each in a transaction of its own: what is wrong with one keeps nobody behind it waiting."""

import logging
from collections.abc import Callable, Iterable

from gpuaas.kit.errors import Problem, Stale, Taken

log = logging.getLogger(__name__)

Turn = tuple[str, Callable[[], int]]  # whose it is, and what is done; how much that changed


def each(turns: Iterable[Turn]) -> int:
    """How much they changed. What went wrong is raised when everybody had their turn, so that the run counts as failed.

    Where the database is away, nobody behind could do better: that ends the run at once.
    """
    changed = 0
    wrong: Exception | None = None
    for id, work in turns:
        try:
            changed += work()
        except (Stale, Taken):
            continue  # somebody moved it in this moment; the next run looks again
        except Exception as error:
            if isinstance(error, Problem) and error.code == "store_unavailable":
                raise
            log.exception("this one has to wait for the next run", extra={"fields": {"id": id}})
            wrong = wrong or error
    if wrong is not None:
        raise wrong
    return changed
