"""What one statement finds and notes, for those that are sent in the same round trip; gone with the transaction."""


def noting(name: str, column: str) -> str:
    return f"set_config('gpuaas.{name}', {column}, true)"


def noted(name: str) -> str:
    return f"current_setting('gpuaas.{name}', true)"
