"""The RocketMQ client for Python, on trio; `rmq.client.blocking` is the same without a loop.

Read `messages`, `config` and `flows` first: everything a client says to nameservers and brokers is
a flow, free of I/O. `client` runs flows on connections and keeps routes and heartbeats; producers
and consumers are built on it.
"""
