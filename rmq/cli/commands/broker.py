"""`rmq broker`: a broker as a process."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.cluster_options import NAMESERVERS_METAVAR
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Option, flag, path_type

COMMAND: Final = Command(
    name="broker",
    help="run a broker",
    description=(
        "Runs a broker until SIGTERM or Ctrl-C: takes messages, keeps them and gives them to"
        " consumers. Settings are those of RocketMQ 4.9.8, in the same file."
    ),
    params=(
        Option(
            "-c",
            "--config",
            type=path_type(),
            metavar="FILE",
            help="settings, usually broker.conf",
        ),
        Option(
            "-n",
            "--nameservers",
            metavar=NAMESERVERS_METAVAR,
            help="nameservers to register with, instead of namesrvAddr or $NAMESRV_ADDR",
        ),
        Option("--port", metavar="PORT", help="the port for clients, instead of listenPort"),
        Option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="a setting, instead of the one in FILE; may be given several times",
        ),
        flag(
            "-p",
            "--print-config",
            help="print all settings as they would be used, and exit",
        ),
        flag(
            "-m",
            "--print-important",
            help="print the important settings as they would be used, and exit",
        ),
    ),
    run="rmq.cli.broker:run",
    is_service=True,
    examples=(
        "rmq broker -c broker.conf -n 127.0.0.1:9876",
        "rmq broker --port 10921 --set brokerName=broker-b --set storePathRootDir=data",
        "rmq broker -c broker.conf -p",
        "rmq broker -m",
    ),
)
