"""Runtimes that another site or a vendor publishes: a signed index beside their files, in any directory or web server.

The form and the rules are TUF's (the `tuf` package decides what is trusted); these are our words for its parts:

root       who may sign what, and how many of them it takes. Each new one is signed by the old and by the new keys
bundles    which runtimes there are, each with length and digest (TUF: targets)
freshness  that this is the newest of all that (TUF: snapshot and timestamp); expires within days
mirror     whoever hands these files on. Nobody trusts it
source     a mirror whose root an operator has pinned on this machine, and the newest index seen there
"""
