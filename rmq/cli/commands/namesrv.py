"""`rmq namesrv`: a nameserver as a process."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Option, flag, path_type

COMMAND: Final = Command(
    name="namesrv",
    help="run a nameserver",
    description=(
        "Runs a nameserver until SIGTERM or Ctrl-C. Brokers register with it and clients ask it"
        " where topics are. Several run side by side without knowing of each other."
    ),
    # The second long names are those of the original `mqnamesrv`.
    params=(
        Option(
            "-c",
            "--config",
            "--configFile",
            "config",
            type=path_type(),
            metavar="FILE",
            help="settings, usually namesrv.conf",
        ),
        flag(
            "-p",
            "--print-config",
            "--printConfigItem",
            "print_config",
            help="print all settings as they would be used, and exit",
        ),
        Option(
            "--host", metavar="HOST", help="address to listen on, instead of bindAddress (0.0.0.0)"
        ),
        Option("--port", metavar="PORT", help="port to listen on, instead of listenPort (9876)"),
    ),
    run="rmq.cli.namesrv:run",
    is_service=True,
    examples=("rmq namesrv -c namesrv.conf", "rmq namesrv --port 9877", "rmq namesrv -p"),
)
