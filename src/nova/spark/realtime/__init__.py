"""The plan in Spark's real-time mode: milliseconds from event to sink.

    feeds ─ log ─ route ─┐
                         ├─ by group ─ join ─ results ─ publisher
    feeds ─ log ─ route ─┘

Feeds (generator, replay, MQTT) append to a local log per stream; a small JVM part (`java/`) tails the logs, routes by
plan, joins and writes results one by one; a publisher puts them where today's sinks do, each exactly once.
"""
