"""When a master sends its slaves what was appended.

No other module decides it. What an append triggers depends on the replication mode in
force, and on whether it was made in a round (one pass of the poller over ready connections):

    on append       sync mode, and no send waits for slaves: in the step of the append. Slaves have
                    nothing else to do until they get this.
    end of a round  sync mode, and sends wait already: once for all messages of the round.
                    Async mode: also once, if the last time was `PUMP_PAUSE_S` ago or longer.
    later           async mode, within that pause: at the end of the first round after it, or
                    `PUMP_LATEST_S` after the last time if no round ends by then.

Appends outside of rounds (delayed messages, checks of transactions) count as a round of their own
that ends as soon as the event loop gets to it. Besides that, `now` is called when slaves should
hear something else at once: the mode or the settings changed, tables have news, the broker hands
over.

What is sent then is up to `HaServer.pump`: to each slave as much as its socket takes. A slave that
reports, or whose socket takes more, gets the rest from the server without this module; and after a
change of the in-sync record `HaServer` itself sends to all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.ha.server import HaServer

PUMP_PAUSE_S: Final = 0.003
"""In async mode slaves get what is new at once, but then not again for this long: sending, and what
it makes slaves do, costs as much for one message as for many.
"""
PUMP_LATEST_S: Final = 0.006
"""After this long they get it even if no further round of requests ends. Later than that pause, so
that under a steady load rounds do it and no timer has to fire.
"""


@final
class Pump:
    """Calls `HaServer.pump` at the right times while this broker is master."""

    def __init__(self, acknowledger: Acknowledger, in_round: Callable[[], bool]) -> None:
        self._acknowledger = acknowledger
        self._in_round = in_round
        self._server: HaServer | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_planned = False
        self._pumped_at = -math.inf
        self._scope = trio.CancelScope()

    def begin(self, server: HaServer) -> None:
        """This broker is master from now on, with this server."""
        self._server = server
        self._token = trio.lowlevel.current_trio_token()
        self._is_planned = False

    def end(self) -> None:
        """This broker is master no longer."""
        self._server = None

    def now(self) -> None:
        """Send slaves what was appended, as far as possible without waiting."""
        self._is_planned = False
        self._pumped_at = trio.current_time()
        self._scope.deadline = math.inf
        if self._server is not None:
            self._server.pump()

    def appended(self) -> None:
        """Messages were appended (`StoreListener.appended`)."""
        server = self._server
        if server is None:
            return
        master = server.master
        if self._acknowledger.replicator is not None and not len(master.pending_acks):
            self.now()
            return
        if not self._is_planned and len(master.slaves):
            self._is_planned = True
            if self._in_round():
                return
            assert self._token is not None
            self._token.run_sync_soon(self.end_round, idempotent=True)

    def end_round(self) -> None:
        """A round of requests is over."""
        if not self._is_planned:
            return
        if (
            self._acknowledger.replicator is not None
            or trio.current_time() >= self._pumped_at + PUMP_PAUSE_S
        ):
            self.now()
        else:
            self._scope.deadline = self._pumped_at + PUMP_LATEST_S

    async def run(self) -> None:
        """Send what no round has sent in time, until cancelled."""
        while True:
            with trio.CancelScope() as self._scope:
                await trio.sleep_forever()
            if self._is_planned:
                self.now()
