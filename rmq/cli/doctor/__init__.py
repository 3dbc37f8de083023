"""`rmq doctor`: what is wrong with a machine, a settings file or a cluster, and what to do.

`checks` says what a check is, and `machine` has the rules for a machine: both pure. `settings`
and `cluster` look at a file and at brokers; `command` runs all that the command line asks for.
"""
