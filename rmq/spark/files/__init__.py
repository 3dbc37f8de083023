"""The format `rocketmq-store`: the CommitLog of a store directory as a table.

settings   what a query is told, checked
planning   which task reads which part of the log, and what is missing before it is begun
filters    which records are rows
scan       one part of the log: from the bytes of a segment to batches
source     what Spark calls
"""
