"""Clients, producers and consumers whose work is done by tasks of an event loop, trio or asyncio.

`loop` says what differs between the two; `rmq.client.trio` and `rmq.client.aio` have it. Everything
else here is written once, with anyio. `runner` runs flows on connections, `client` keeps routes and
heartbeats; producers and consumers are built on it.
"""
