"""Pages about a master that is lost: promotions that are not planned, and the old master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runbooks.site import running_site
from tests.runbooks.steady import TOPIC, Steady
from tests.runbooks.units import BROKER

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lost_master_is_replaced_and_comes_back_as_a_slave(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        site.follow("first-deployment.md", "Steps")
        with Steady(site.nameservers) as steady:
            steady.wait_for(50)
            site.unit("10.0.0.1", BROKER).kill()
            site.follow("promote.md", "Unplanned: the master is gone")
            site.follow("promote.md", "The old master comes back")
            steady.wait_for(50)
            site.do("10.0.0.2", "rmq ha hand-over -b 10.0.0.2:10911 --yes")
            site.until_healthy()
        assert steady.sent <= site.consumed("10.0.0.1", TOPIC)

        site.do("10.0.0.1", "rmq ha switch async -b 10.0.0.1:10911")
        site.unit("10.0.0.1", BROKER).kill()
        site.follow("promote.md", "Forced: the slave refuses")
        assert steady.sent <= site.consumed("10.0.0.2", TOPIC)
