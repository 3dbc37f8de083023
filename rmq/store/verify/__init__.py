"""A full check of a store directory: log, ConsumeQueues and index against each other."""

from rmq.store.verify.store import Progress, Verifier, known_topics, verify

__all__ = ["Progress", "Verifier", "known_topics", "verify"]
