"""The kernel's accounting groups on v1, hybrid and v2 hosts: limits, use, and the end of everything inside."""
