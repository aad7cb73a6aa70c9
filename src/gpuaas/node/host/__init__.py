"""The only code that touches the machine. `interface` is the contract; `fake` is a shipped second implementation."""
