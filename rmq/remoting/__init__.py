"""Request and response over one TCP connection, as RocketMQ 4.9.8 does it.

Reading order: `layout` (the bytes), `codes`, `header` and `headers` (typed header fields),
`bodies`, `protocol` (which request carries which), `command` (one frame, decoded), `frame` (bytes
in, commands out), `session` (opaque numbers and requests under way), `outbox`; then the trio glue:
`transport`, `channel` (one connection), `poller`, `endpoint` (what connections share), `groups`,
`request` and `dispatch` (handlers), and `server`, `client`, `tls`. The modules before `transport`
do no I/O.
"""
