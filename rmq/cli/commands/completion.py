"""`rmq completion SHELL`: words completed by the shell."""

from __future__ import annotations

from typing import Final

import click

from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument

COMMAND: Final = Command(
    name="completion",
    help="print the script that completes words in a shell",
    description=(
        "Prints a script for bash, zsh or fish that completes commands, options and their values."
        " Load it in the file that your shell reads at its start."
    ),
    params=(Argument("shell", "which shell", type=click.Choice(("bash", "zsh", "fish"))),),
    run="rmq.cli.completion:run",
    examples=(
        'eval "$(rmq completion bash)"      # in ~/.bashrc',
        'eval "$(rmq completion zsh)"       # in ~/.zshrc',
        "rmq completion fish > ~/.config/fish/completions/rmq.fish",
    ),
)
