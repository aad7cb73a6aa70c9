"""Background loops: intended against actual. One function over short transactions each, safe on every replica."""
