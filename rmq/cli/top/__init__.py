"""`rmq top`: brokers and consumer groups of a cluster, live on a terminal.

`view` turns what brokers told into lines (pure), `app` shows them with textual, `command` asks.
"""
