"""What the container of a machine may do: said to the OCI runtime, applied to those who enter, verified afterwards.

`config` is for the runtime, `apply` for a process of ours that has entered, `verify` looks at the result. They share
`syscalls`, `capabilities` and `rlimits`, so that both ways in lead to the same rights. Nothing here starts anything.
"""
