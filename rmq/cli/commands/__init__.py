"""What the command line offers: a module for every subcommand, with a `COMMAND` in it.

They declare names, parameters, help and examples, and say where the function is that does the work.
Help and completion load all of them, so they import click and `rmq.cli.common` only.
"""
