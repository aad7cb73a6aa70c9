"""What every layer stands on: errors, ids, clocks, logs, configuration. No product words here."""
