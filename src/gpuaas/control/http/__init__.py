"""The HTTP edge: parse, one app call, view. No SQL, no state logic."""
