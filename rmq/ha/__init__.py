"""Replication: a master streams its CommitLog to slaves and tracks what each of them holds.

Reading order: `protocol` (the rules, free of I/O), then the modules that move bytes: `server` and
`master_channel` at the master, `slave` and `receiver` at the slave.
"""
