"""Raw ping results in, clean latencies out: read, validate, quarantine, aggregate, report."""
