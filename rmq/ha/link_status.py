"""Log lines and status snapshots of a master's links."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from rmq.ha.protocol.master_link import LinkState
from rmq.log_limits import LimitedLog

if TYPE_CHECKING:
    from rmq.ha.master_channel import Channel
    from rmq.ha.protocol.master_link import MasterLink
    from rmq.ha.protocol.slaves import SlaveProgress
    from rmq.model.offsets import PhysicalOffset

REFUSED: Final = "refused: "
"""How `MasterLink` begins the reason of a refusal."""

STOPS: Final = "this broker stops serving slaves"
"""Why links end that this broker ends on purpose: it stops, or is no master any more."""

_KIND: Final = "links to slaves"
"""All lines of a host count together, as far as limits are concerned."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """Status of a slave, as its master sees it."""

    name: str
    address: str
    identity: str
    broker_id: int | None
    is_native: bool
    is_connected: bool
    is_secure: bool
    in_sync: bool
    appended: PhysicalOffset
    """End of what it holds; -1 before its first report."""
    flushed: PhysicalOffset
    lag_bytes: int
    lag_ms: int
    """For how long it has not held the whole log, at most since it connected."""
    heard_ms_ago: int
    sent_bytes: int
    """Bytes of the log sent on this connection."""
    is_blocked: bool
    """Unsent bytes wait for its socket, or for a disk."""
    why: str
    """Why it disconnected."""


def status_of(
    slave: SlaveProgress, channel: Channel | None, end: PhysicalOffset, now: float
) -> LinkStatus:
    """Return the status of a slave; without a channel it is disconnected."""
    lag_s = min(slave.lag_s(end, now), now - slave.connected_at)
    return LinkStatus(
        name=slave.name,
        address=slave.address,
        identity=slave.identity,
        broker_id=slave.broker_id,
        is_native=slave.is_native,
        is_connected=channel is not None,
        is_secure=channel is not None and channel.is_secure,
        in_sync=slave.in_sync,
        appended=slave.appended,
        flushed=slave.flushed,
        lag_bytes=slave.lag_bytes(end),
        lag_ms=round(lag_s * 1000),
        heard_ms_ago=round((now - slave.heard_at) * 1000),
        sent_bytes=channel.sent_bytes if channel is not None else 0,
        is_blocked=channel is not None and not channel.is_idle,
        why=slave.why_gone,
    )


@final
class LinkLog:
    """Logs slaves that connect and disconnect, with a limit per host."""

    def __init__(self) -> None:
        self._log = LimitedLog(logger)

    def refused(self, host: str, peer: str, why: str, now: float) -> None:
        """Log a connection that was refused before its first byte was read."""
        self._write(logging.WARNING, host, f"refused {peer}: {why}", now)

    def connected(self, host: str, link: MasterLink, end: PhysicalOffset, now: float) -> None:
        """Log a slave whose handshake is done."""
        if link.slave is None:
            return
        dialect = "native" if link.slave.is_native else "stock"
        self._write(
            logging.INFO,
            host,
            f"slave {link.slave.name} connected from {link.peer} ({dialect}), it gets the log"
            f" from {link.position} on, {max(0, end - link.position)} bytes",
            now,
        )

    def in_sync_changed(
        self, host: str, slave: SlaveProgress, end: PhysicalOffset, now: float
    ) -> None:
        """Log that a slave got in sync or out of sync."""
        if slave.in_sync:
            line = f"slave {slave.name} is in sync at {slave.appended}"
            self._write(logging.INFO, host, line, now)
            return
        self._write(
            logging.WARNING,
            host,
            f"slave {slave.name} is out of sync: it lacks {slave.lag_bytes(end)} bytes and last"
            f" had all there was {slave.lag_s(end, now):.1f} s ago",
            now,
        )

    def ended(self, host: str, link: MasterLink, now: float) -> None:
        """Log the end of a link."""
        why = link.end_reason
        if link.slave is not None:
            line = f"slave {link.slave.name} at {link.peer} is gone: {why}"
            self._write(logging.INFO if why == STOPS else logging.WARNING, host, line, now)
        elif link.state is LinkState.NEW and not str(why).startswith(REFUSED):
            # A port scan, or a health check.
            logger.debug("%s disconnected without sending anything: %s", link.peer, why)
        else:
            self._write(logging.WARNING, host, f"{link.peer}: {why}", now)

    def summarize(self, now: float) -> None:
        """Log how many lines were suppressed."""
        self._log.summarize(now)

    def _write(self, level: int, host: str, line: str, now: float) -> None:
        self._log.log(level, _KIND, host, now, "%s", line)
