"""Roads in: what other tools know about machines, latencies and streams, as tables of a scenario. One module each."""
