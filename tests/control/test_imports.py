"""What a server carries only when it needs it."""

import subprocess
import sys

RARELY_NEEDED = ("alembic", "authlib", "joserfc", "httpx")


def test_what_is_rarely_needed_is_not_imported_at_the_start() -> None:
    program = f"import sys, gpuaas.control.main; print(*[name for name in {RARELY_NEEDED} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
