"""The command line: one file per command group, talking only to the SDK.

main      the table of all commands, loaded when they are called; the one place where errors become exit codes
session   what a command works with: the server, the token, the project
up, down, server, agent   the four that run processes on this machine
"""
