"""The message store: CommitLog, ConsumeQueues and index on disk.

This module imports nothing, so that `rmq.store.reader` loads without the rest.
"""
