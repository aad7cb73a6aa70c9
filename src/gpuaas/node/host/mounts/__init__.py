"""Mounts, and the namespaces they live in. `kernel` makes the calls; nothing here decides what an allocation gets."""
