"""Nouns and their lifecycles: frozen data and tables. No I/O, no clock, no randomness.

Glossary
    allocation   the machine a user gets; survives restart with the same id, endpoint and host key
    slot         an approved part of a node: GPUs, CPUs and memory that are given out together
    claim        an allocation's hold on a slot; ends only after the node proved it is scrubbed
    seat         a small number, unique per node, from which SSH port and uid range follow
    spec         what a node should look like for one object: (id, incarnation, generation, body)
    condition    what the node says about one object, for one generation of its spec
    fact         something that happened on a node (an exit, a login); never refused for age
    operation    a long change: a projection over generations asked for and conditions reported
    facet        the part of an allocation that one operation at a time may change
"""
