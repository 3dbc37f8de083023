"""`python -m rmq`: the command line, for when the `rmq` script is not on the path."""

import sys

from rmq.cli import main

if __name__ == "__main__":
    sys.exit(main())
