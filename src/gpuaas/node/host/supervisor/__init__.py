"""One small process per machine that outlives the agent: it holds the SSH port, starts the container, opens a session
of its own for everybody who comes, and knows who is there and how it ended.

It is forked from the mount helper, so that starting one costs a millisecond. The agent talks to it through a socket
(`ask`); it tells what happened by files (`news`), so that no agent has to be there at that time.
"""
