"""What a server counts and times in its own process. Every label has few values, however many machines there are."""

from gpuaas.kit.meters import AGE, COUNTER, GAUGE, HISTOGRAM, Family

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOW = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

METERS: dict[str, Family] = {
    "api_request_seconds": Family(
        HISTOGRAM, "Until an answer began, by class of route and first digit of its status", ("class", "status"), QUICK
    ),
    "launch_phase_seconds": Family(HISTOGRAM, "How long each phase of a launch took that succeeded", ("phase",), SLOW),
    "launch_seconds": Family(HISTOGRAM, "From submit to ready, of launches that succeeded", (), SLOW),
    "operations_total": Family(COUNTER, "Long changes that ended, by kind and how", ("kind", "state")),
    "links": Family(GAUGE, "Nodes that are linked to this server"),
    "link_lag_seconds": Family(
        HISTOGRAM, "From a spec that was pushed to the heartbeat that says the node has it", (), SLOW
    ),
    "sweep_age_seconds": Family(AGE, "Since the sweep last ran to its end on this server", ("sweep",)),
    "sweep_seconds": Family(HISTOGRAM, "How long a sweep took", ("sweep",), QUICK),
    "sweep_failures_total": Family(COUNTER, "Runs of a sweep that failed", ("sweep",)),
    "webhook_attempts_total": Family(COUNTER, "Attempts to deliver an event, by outcome", ("outcome",)),
    "transactions_retried_total": Family(COUNTER, "Transactions that ran again after a conflict"),
    "store_unavailable_total": Family(COUNTER, "Transactions that the database did not carry out", ("why",)),
}
