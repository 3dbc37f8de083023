"""The metrics of a broker: collectors that turn what is counted anyway into samples.

Names and labels are in docs/metrics.md.
"""
