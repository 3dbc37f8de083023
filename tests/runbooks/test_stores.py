"""Pages about stores: slaves that are replaced, copies that are made and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runbooks.site import running_site
from tests.runbooks.steady import TOPIC
from tests.runbooks.units import BROKER

if TYPE_CHECKING:
    from pathlib import Path


def test_slaves_are_replaced_and_a_lost_name_is_restored(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        site.follow("first-deployment.md", "Steps")
        site.unit("10.0.0.2", BROKER).kill()
        site.follow("replace-slave.md", "Before you begin", "The disk is empty")

        site.do("10.0.0.1", "seq 100 | rmq produce broker-a")
        site.follow("backup.md", "Make a backup", "Look into a copy")
        site.do("10.0.0.1", "seq 101 200 | rmq produce broker-a")
        site.follow("backup.md", "Restore a slave")
        site.unit("10.0.0.2", BROKER).kill()
        site.follow("replace-slave.md", "From a copy")

        for machine in ("10.0.0.1", "10.0.0.2"):
            site.unit(machine, BROKER).kill()
        site.follow("backup.md", "Restore a name that is lost")
        kept = {str(number) for number in range(1, 101)}
        assert site.consumed("10.0.0.1", TOPIC) == kept | {"good morning"}
