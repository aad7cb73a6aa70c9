"""The server's side of the node link. `session` decides, one transaction per frame; `socket` only moves frames."""
