"""The network of an allocation, as the host makes and guards it.

machine     what runs in an allocation: a user namespace and a network namespace of its own, kept by pins
link        a veth pair without a bridge: `<prefix><id>` on the host, `eth0` in the machine. One address, one route
table       the nft table: nothing passes that it does not name
member      a machine that the table names: its interface, its address, its project
"""
