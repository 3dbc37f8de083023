"""Request and response over one TCP connection, as RocketMQ 4.9.8 does it.

Reading order: `layout` (the bytes), `codes`, `header` and `headers` (typed header fields),
`command` (one frame, decoded), `frame` (bytes in, commands out), `session` (opaque numbers and
requests under way), then the trio glue: `transport`, `channel`, `dispatch`, `server`, `client`,
`tls`. The modules before `transport` do no I/O.
"""
