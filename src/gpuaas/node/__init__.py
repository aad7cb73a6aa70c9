"""The agent: one per node. It makes the machine look like its specs, again and again, from any starting point.

main -> link -> runner -> steps -> host | journal
"""
