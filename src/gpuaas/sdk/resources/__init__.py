"""One file per resource, one method per route. `list` and `follow` are iterators, everything else is one answer."""
