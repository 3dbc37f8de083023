"""The script that has a shell complete the words of `rmq`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import get_completion_class

from rmq.cli.app import program
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.program import COMPLETION_VARIABLE, NAME

if TYPE_CHECKING:
    from argparse import Namespace


def run(args: Namespace) -> int:
    """Print the script."""
    completion = get_completion_class(args.shell)
    assert completion is not None, f"click knows no {args.shell}"
    print(completion(program(), {}, NAME, COMPLETION_VARIABLE).source())
    return ExitCode.OK
