"""The rules of replication, without I/O: every module here takes time and bytes as arguments.

Reading order: `wire` (the bytes), `slaves` (what a master knows of its slaves), `pending_acks` (the
sends that wait for them), `master_link` and `slave_link` (one connection, seen from either end),
`master` (all connections of a master), `record_keeper` and `promotion` (who may become master).
"""
