"""Values without input or output: what RocketMQ peers agree on, however the bytes travel.

Nothing here opens a socket or a file, knows the time or starts a task. The modules may be used from
any thread, and import only `rmq.packing` and `rmq.errors` of ours.
"""
