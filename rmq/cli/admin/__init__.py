"""What the commands for topics, groups, messages, settings and clients do.

`session` finds the cluster and asks all brokers at once; each other module serves one subject:
flows that read and change, then what is printed of them. They use the blocking client, which loads
no event loop: a command ends after a few tenths of a second.
"""
