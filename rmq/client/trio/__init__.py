"""The client on trio.

`runner` runs flows on connections, `client` keeps routes and heartbeats; producers and consumers
are built on it.
"""
