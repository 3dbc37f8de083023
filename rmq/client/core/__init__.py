"""What both clients share, free of I/O: messages, routes, and what is said to brokers.

Everything a client asks of nameservers and brokers is a flow (`flows`): a generator that yields
requests and gets answers. `rmq.client.tasks` and `rmq.client.blocking` run flows on connections.
"""
