"""Which broker names are read from slaves because their master cannot be reached.

A slave has the messages, queues and offsets of its master, except perhaps the newest. So reads go
to it if there is no master, which is logged once per outage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from rmq.client.core.routes import Address

logger = logging.getLogger(__name__)

NAMES_MAX: Final = 4096
"""Names whose outages are remembered; beyond that, the oldest is logged again."""


@final
class SlaveReads:
    """The names that are read from slaves now."""

    def __init__(self) -> None:
        self._outages: dict[str, str | None] = {}
        """Each name's master when it could not be reached last; None: it had none."""

    def used(self, slave: Address, master: str | None = None) -> None:
        """A slave is asked in place of the master: there is none, or it cannot be reached."""
        name = slave.broker_name
        if name not in self._outages:
            if len(self._outages) >= NAMES_MAX:
                del self._outages[next(iter(self._outages))]
            why = (
                "has no master now" if master is None else f"has a master at {master} that is away"
            )
            logger.warning(
                "broker %s %s: it is read from its slave at %s, which may lack the newest messages",
                name,
                why,
                slave.address,
            )
        self._outages[name] = master

    def master_is(self, name: str, master: str | None) -> None:
        """Nameservers tell which master a name has. One that could not be reached is no news."""
        if name in self._outages:
            if master is None:
                self._outages[name] = None
            elif self._outages[name] != master:
                self.answered(name)

    def answered(self, name: str) -> None:
        """The master of a name has answered, or there is a new one: the outage is over."""
        if name in self._outages:
            del self._outages[name]
            logger.info("broker %s has a master again", name)
