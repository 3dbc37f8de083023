"""Access control as in RocketMQ 4.9.8: who may send which request, by signature or by address.

Begin with `needs.py`, what each request needs, and `rules.py`, the check of one request.
`accounts`, `permissions`, `signatures` and `white_list` are what the rules are made of, `document`
is one file of them as YAML, `files` finds and reads those files, and `control.py` puts it together
for a server:

    access = AccessControl(find_files(...))    # raises ConfigError, blocks
    RemotingServer(table, guard=access.guard)
    nursery.start_soon(watch, access.poll)     # reads changed files again

Nothing but `watch` knows trio.
"""
