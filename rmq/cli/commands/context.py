"""`rmq context ACTION`: clusters by name."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.cluster_options import NAMESERVERS_METAVAR, tls_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument, Option, flag, path_type

_NAME: Final = Argument("name", "what the cluster is called here")
_JSON: Final = flag("--json", help="print JSON for scripts")

COMMAND: Final = Command(
    name="context",
    help="name clusters, and choose the one that commands are for",
    description=(
        "Keeps addresses, account and encryption of clusters under names, in rmq/config.toml of"
        " the user's configuration ($XDG_CONFIG_HOME, else ~/.config). The one in use counts for"
        " every command that names no cluster (-n, -b, $NAMESRV_ADDR); --context and $RMQ_CONTEXT"
        " choose another one."
    ),
    actions=lambda: (
        Command(
            name="list",
            help="list all names",
            params=(_JSON,),
            run="rmq.cli.context:list_contexts",
        ),
        Command(
            name="show",
            help="show what is known of a cluster",
            params=(
                Argument("name", "which one (default: the one in use)", required=False),
                _JSON,
            ),
            run="rmq.cli.context:show",
        ),
        Command(
            name="use",
            help="choose the cluster that commands are for",
            params=(_NAME,),
            run="rmq.cli.context:use",
        ),
        Command(
            name="add",
            help="name a cluster, or change what is known of it",
            description="Names a cluster. The first one that is named is in use from then on.",
            params=(
                _NAME,
                Option(
                    "-n",
                    "--nameservers",
                    metavar=NAMESERVERS_METAVAR,
                    required=True,
                    help="where its nameservers are",
                ),
                Option(
                    "--credentials",
                    type=path_type(),
                    metavar="FILE",
                    help="file with accessKey and secretKey of an account",
                ),
                *tls_options("encryption"),
            ),
            run="rmq.cli.context:add",
        ),
        Command(
            name="remove",
            help="forget a name",
            params=(_NAME,),
            run="rmq.cli.context:remove",
        ),
    ),
    examples=(
        "rmq context add production -n '10.0.0.5:9876;10.0.0.6:9876'",
        "rmq context add test -n 127.0.0.1:9876 --tls-trust ca.pem",
        "rmq context use production",
        "rmq context list",
    ),
)
