"""`rmq generate KIND`: files for running rmq. The kinds declare their own options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence


def _actions() -> Sequence[Command]:
    from rmq.cli.generate.command import actions

    return actions()


COMMAND: Final = Command(
    name="generate",
    help="print files for running rmq: settings, units, containers, alerts",
    description=(
        "Prints files for running rmq, filled in from the command line or from the settings of a"
        " broker (-c). Secrets are left out."
    ),
    actions=_actions,
    action_word="kind",
    examples=(
        "rmq generate broker-conf --topology sync-pair --out conf",
        "rmq generate systemd -c broker.conf",
        "rmq generate compose --out deployment",
        "rmq generate k8s -c broker.conf | kubectl apply -f -",
        "rmq generate grafana --out grafana",
        "rmq generate prometheus --brokers '10.0.0.1;10.0.0.2' --out /etc/prometheus",
    ),
)
