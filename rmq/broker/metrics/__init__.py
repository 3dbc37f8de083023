"""The metrics of a broker for Prometheus, and the small HTTP server that serves them.

`replication` turns the state of replication into samples, `registry` joins them with those of the
process, `server` answers scrapes. Names and labels are in docs/metrics.md.
"""
