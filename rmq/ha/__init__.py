"""Replication: a master streams its CommitLog to slaves, and knows what each of them holds.

Reading order: `wire` (the bytes), `replicas` (what a master knows of its slaves), `promises` (what
it has told producers), `master_link` and `slave_link` (one connection, seen from either end), all
of them free of I/O; then the glue that moves bytes: `server`, `sending`, `follower`.
"""
