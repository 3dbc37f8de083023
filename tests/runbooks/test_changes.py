"""Pages about a pair that is well: it is deployed, switched, handed over, restarted, upgraded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runbooks.site import running_site
from tests.runbooks.steady import TOPIC, Steady

if TYPE_CHECKING:
    from pathlib import Path


def test_every_planned_change_is_made_while_messages_are_sent(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        site.install("0.1.0", "0.2.0")
        site.follow("first-deployment.md", "Steps")
        with Steady(site.nameservers) as steady:
            site.follow("switch-mode.md", "To async", "To sync")
            site.follow("promote.md", "Planned: the master runs")
            site.do("10.0.0.1", "rmq ha hand-over -b 10.0.0.2:10911 --yes")
            site.until_healthy()
            site.follow("rolling-restart.md", "Before you begin", "The nameservers", "The brokers")
            site.follow("rolling-upgrade.md", "Before you begin", "The nameservers")
            site.follow("rolling-upgrade.md", "The slave", "The master")
        assert steady.failures == []
        assert steady.sent <= site.consumed("10.0.0.1", TOPIC)
        for machine in site.machines.values():
            assert machine.path("opt/rmq").readlink().name == "rmq-0.2.0"
