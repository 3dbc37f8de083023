"""Metrics for Prometheus, and the small HTTP server that serves them: what brokers and nameservers
share.

`families` declares and collects samples, `exposition` makes text of them, `http` and `server`
answer scrapes. Names and labels of all metrics are in docs/metrics.md.
"""
