"""Opens the port that metrics are served on.

A port that an operator has set must be opened, or the process does not start. One without a
setting is a convenience: where it is in use, by another broker of the same machine for example, the
process says so in one line and goes without. It takes no other one, because a Prometheus would not
know which, and after the next start it might be that of the other broker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.errors import ListenError
from rmq.metrics.server import listen, serve_listeners
from rmq.remoting.addresses import format_address
from rmq.settings import metrics_port

if TYPE_CHECKING:
    import trio

    from rmq.metrics.server import Pages

_log = logging.getLogger(__name__)


async def start_metrics(
    nursery: trio.Nursery, host: str, port: int, default: int, pages: Pages
) -> str | None:
    """Serve metrics in a nursery; return where, None if they are not served.

    `port` is that of the settings, `default` the one for a port that is not set, 0 for none. Raise
    `ListenError` if a port that was set cannot be opened.
    """
    wanted = metrics_port.wanted(port, default)
    if not wanted:
        return None
    try:
        listeners = await listen(host, wanted)
    except ListenError as exc:
        if port != metrics_port.UNSET:
            raise
        _log.warning(
            "no metrics are served: %s; set metricsPort to a free port, or to 0 for none",
            exc,
        )
        return None
    opened = await nursery.start(serve_listeners, listeners, pages)
    where = format_address((host, opened))
    _log.info("metrics are served at http://%s/metrics", where)
    return where
