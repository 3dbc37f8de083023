"""The `rmq` command line: parse arguments, set up logging, run one command, report its failure.

`app` is the program and holds the list of commands; each command is a module of this package with a
`COMMAND` in it (see `command`). Commands compose parts of the other packages: rules of their own do
not belong here.
"""

from rmq.cli.app import main

__all__ = ["main"]
