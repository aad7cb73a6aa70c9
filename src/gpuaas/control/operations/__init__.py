"""Long changes. `launch`, `restart`, `release` write what is wanted; `observe` reads what nodes answer.

There is one recovery mechanism: desired state. Nothing here undoes; a change that fails writes a new generation that
restores the last good one (or a tombstone when there is none), in the transaction that records the failure.
"""
