"""The parts of bench_fairness.py: scenarios, the state of the servers, probes, and rows."""
