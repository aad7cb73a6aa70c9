"""Events out. `dispatch` decides whose turn it is, `send` makes one attempt, `address` says where it may go."""
