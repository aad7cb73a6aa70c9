"""The control plane: stateless replicas over one PostgreSQL.

main -> http | sweeps | link -> app -> operations -> store | placement
"""
