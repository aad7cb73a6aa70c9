"""What GPUs there are, how one is handed over (CDI), and how it is cleared: real ones and simulated ones."""
