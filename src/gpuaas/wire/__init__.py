"""Typed messages of the two protocols: `api` (HTTP) and `node` (the node link). All that control and node share."""
