"""The slave's side of replication: connects to its master, receives its log, reports status.

    runner = SlaveRunner(store, log, settings, listener, Dialling())
    runner.point_to("10.0.0.1:10912", "10.0.0.1:10911")
    nursery.start_soon(runner.run)

A connection that ends is made again, with increasing pauses. A condition that retries cannot fix
(this log has diverged, the master is of an older epoch, it refuses this slave) is logged once and
shown in `status`; the slave then only repeats the handshake every few seconds and takes no bytes. A
full disk ends the connection, not the slave: it continues where it stopped when there is room.

The slave tries the native dialect first. A master that does not answer it is a stock master and is
examined (`stock_master`) before it is followed, unless a secret or TLS is configured, which no
stock master has: then it is refused. Where the master was native before, even before this slave was
started, silence is not enough: it may hang. A stock master repeats what it was sent after 5 s, and
only that identifies it then.
"""

from __future__ import annotations

import logging
import math
import os
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import ConfigError, LogGapError, StoreError
from rmq.ha import stock_master
from rmq.ha.protocol.slave_link import EndKind, LinkEnd, MasterView, SlaveLink
from rmq.ha.protocol.wire import NONCE_BYTES, CatchUp
from rmq.ha.receiver import Receiver, ReceiverCounters
from rmq.ha.slave_connection import dial
from rmq.ha.slave_status import SlaveState, SlaveStatus
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.client import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rmq.ha.protocol.log_view import LogView
    from rmq.ha.protocol.slave_link import SlaveSettings
    from rmq.ha.slave_connection import Dialling
    from rmq.ha.slave_listener import SlaveListener
    from rmq.store.store import MessageStore

CONNECT_S: Final = 5.0
RETRY_MIN_S: Final = 0.2
RETRY_MAX_S: Final = 1.0
GREET_S: Final = 5.0
"""Pause between handshakes with a master that cannot be followed."""
STEADY_S: Final = 1.0
"""After a connection that lasted this long the next attempt follows soon."""
DISK_RETRY_S: Final = 1.0
LAG_S_MAX: Final = 3.0
"""A slave that has been behind for longer than this is catching up again."""
ROUND_TRIPS: Final = 6
"""A master that is silent for this many round trips, as measured at connecting, is a stock one."""

logger = logging.getLogger(__name__)


_TROUBLES: Final = {
    EndKind.DIVERGED: (
        SlaveState.DIVERGED,
        "this slave has stopped: its log is not the beginning of its master's: %s. `rmq ha verify`"
        " shows where they part, `rmq ha resync` cuts this log there",
    ),
    EndKind.STALE: (
        SlaveState.STALE,
        "this slave has stopped: %s. Let the older one become a slave (`rmq ha demote`), or point"
        " this one to the master of the later epoch",
    ),
    EndKind.REFUSED: (
        SlaveState.REFUSED,
        "this slave has stopped: %s. Compare the settings of master and slave (brokerClusterName,"
        " brokerName, haSecret, haDialect, mappedFileSizeCommitLog)",
    ),
    EndKind.RESEED: (
        SlaveState.RESEEDING,
        "this slave copies the log from the start: %s",
    ),
}
_OUTRUN: Final = (
    "this slave has stopped: %s. Without haSecret it cannot verify that this is its master; if it"
    " is, `rmq ha resync` moves this log aside and copies it from the start"
)
_LIVE: Final = (SlaveState.CATCHING_UP, SlaveState.STREAMING)


class SlaveRunner:
    """Replicates from one master at a time, while `run` runs."""

    def __init__(
        self,
        store: MessageStore,
        log: LogView,
        settings: SlaveSettings,
        listener: SlaveListener,
        dialling: Dialling,
    ) -> None:
        if dialling.dialect == "stock" and (settings.secret or dialling.tls_context is not None):
            raise ConfigError("haDialect", "stock masters know neither haSecret nor TLS")
        self._store = store
        self._log = log
        self._settings = settings
        self._listener = listener
        self._dialling = dialling
        self._ha_address: str | None = None
        self._master_address: str | None = None
        self._pointed = trio.Event()
        self._suspensions = 0
        self._stopped = trio.Event()
        """Set while no master is followed."""
        self._target_scope = trio.CancelScope()
        self._state = SlaveState.IDLE
        self._since = 0.0
        self._link: SlaveLink | None = None
        self._master = MasterView()
        self._was_native = dialling.was_native
        """A master of this name has answered in the native dialect, and none in the stock one
        since."""
        self._warned_unasked = False
        self._news: int | None = None
        self._live_at = 0.0
        """When bytes of this master were last let in."""
        self._caught_up_at = -math.inf
        self._last_error: str | None = None
        self._diverged_at: PhysicalOffset | None = None
        self._connects = 0
        self.counters = ReceiverCounters()
        """Totals of all connections since the start."""
        self._failure_told: str | None = None
        """The last failure of the store that was logged."""
        self._received_before = 0
        self._waits: list[tuple[PhysicalOffset, trio.Event]] = []
        self._expects_end = False

    # --- control and status ------------------------------------------------------------------

    def point_to(self, ha_address: str | None, master_address: str | None) -> None:
        """Follow another master from now on; None: no master.

        `master_address` is its address for clients, if known: a stock master is asked there about
        its log.
        """
        self._master_address = master_address
        if ha_address != self._ha_address:
            self._ha_address = ha_address
            self._pointed.set()
            self._target_scope.cancel()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Receive nothing inside this context; the master's last state stays known."""
        self._suspensions += 1
        self._pointed.set()
        self._target_scope.cancel()
        try:
            await self._stopped.wait()
            yield
        finally:
            self._suspensions -= 1
            self._pointed.set()

    @contextmanager
    def expecting_end(self) -> Iterator[None]:
        """Inside this context the master was asked to step down: that it goes is no warning."""
        self._expects_end = True
        try:
            yield
        finally:
            self._expects_end = False

    def rename(self, incarnation: int) -> None:
        """Use this incarnation of the store from the next connection on."""
        self._settings = replace(self._settings, incarnation=incarnation)

    @property
    def status(self) -> SlaveStatus:
        now = trio.current_time()
        link, end = self._link, self._log.end
        is_streaming = link is not None and link.is_streaming
        lag_bytes = max(0, self._master.end - end)
        lag_s = 0.0 if is_streaming and not lag_bytes else max(0.0, now - self._caught_up_at)
        state = self._state
        if state is SlaveState.STREAMING and lag_s > LAG_S_MAX:
            state = SlaveState.CATCHING_UP
        return SlaveStatus(
            state=state,
            since=self._since,
            ha_address=self._ha_address,
            master_address=self._master_address,
            is_native=None if link is None else link.is_native,
            master=replace(self._master),
            lag_bytes=lag_bytes,
            lag_s=lag_s,
            last_error=self._last_error,
            connects=self._connects,
            received_bytes=self.counters.received_bytes,
            diverged_at=self._diverged_at,
        )

    async def wait_caught_up(self, offset: PhysicalOffset) -> None:
        """Wait until the log holds everything below `offset`."""
        if self._log.end >= offset:
            await trio.lowlevel.checkpoint()
            return
        wait = (offset, trio.Event())
        self._waits.append(wait)
        try:
            await wait[1].wait()
        finally:
            self._waits.remove(wait)

    # --- the task ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the current master until cancelled."""
        try:
            followed: str | None = None
            while True:
                self._pointed = trio.Event()
                if self._ha_address is None or self._ha_address != followed:
                    self._forget_master()
                if self._ha_address is None or self._suspensions:
                    self._enter(SlaveState.IDLE)
                    self._stopped.set()
                    await self._pointed.wait()
                    continue
                followed = self._ha_address
                self._stopped = trio.Event()
                with trio.CancelScope() as self._target_scope:
                    await self._follow(self._ha_address)
        finally:
            self._link = None
            self._stopped.set()
            self._enter(SlaveState.IDLE)

    def _forget_master(self) -> None:
        self._enter(SlaveState.IDLE)
        self._master = MasterView()
        self._warned_unasked = False
        self._caught_up_at = -math.inf
        self._last_error = None
        self._diverged_at = None

    async def _follow(self, address: str) -> None:
        """Connect to one master again and again."""
        failures = 0
        self._enter(SlaveState.CONNECTING)
        while True:
            was_steady = False
            try:
                self._check_store()
                ending = await self._attempt(address)
                was_steady = (
                    self._state in _LIVE and trio.current_time() >= self._live_at + STEADY_S
                )
                pause_s = self._act_on(ending, address)
            except LogGapError as exc:
                # It was cut to nothing, and has a segment that its master no longer has.
                reason = f"this log begins at {exc.expected}, its master's at {exc.offered}"
                pause_s = self._act_on(
                    LinkEnd(EndKind.RESEED, reason, PhysicalOffset(exc.offered)), address
                )
            except StoreError as exc:
                self._fail(self._refusal() or exc)
                pause_s = DISK_RETRY_S
            finally:
                self._link = None
            if pause_s is None:
                failures = 0 if was_steady else failures
                pause_s = min(RETRY_MAX_S, RETRY_MIN_S * 2 ** min(failures, 8))
                failures += 1
            await trio.sleep(pause_s)

    def _act_on(self, ending: LinkEnd, address: str) -> float | None:
        """Handle the end of a connection; return the pause before the next one, None for soon."""
        kind, reason, offset = ending
        if kind is EndKind.DAMAGED:
            logger.error("%s; this log is cut before them, and they are copied again", reason)
            self._last_error = reason
            self._enter(SlaveState.CONNECTING)
            self._listener.cut(offset, reason)
            return GREET_S
        if kind not in _TROUBLES:
            text = "the connection to the master at %s ended: %s"
            is_news = self._state in _LIVE or self._last_error != reason
            level = logging.INFO if self._expects_end else logging.WARNING
            logger.log(level if is_news else logging.DEBUG, text, address, reason)
            self._last_error = reason
            if self._state in _LIVE:
                self._enter(SlaveState.CONNECTING)
            return None
        self._last_error = reason
        state, text = _TROUBLES[kind]
        if kind is EndKind.RESEED and self._listener.reseed is None:
            state, text = SlaveState.OUTRUN, _OUTRUN
        if kind is EndKind.DIVERGED:
            self._diverged_at = offset
        if state is not self._state:
            self._enter(state)
            is_error = state is not SlaveState.RESEEDING
            logger.log(logging.ERROR if is_error else logging.WARNING, text, reason)
        if kind is EndKind.RESEED and self._listener.reseed is not None:
            self._listener.reseed(offset, reason)
        return GREET_S

    def _fail(self, error: StoreError) -> None:
        self._last_error = str(error)
        self._enter(SlaveState.FAILED)
        if self._failure_told != self._last_error:
            self._failure_told = self._last_error
            logger.error(
                "replication is paused, the store refuses writes: %s; %s",
                error,
                error.hint or "see the log of the store",
            )

    def _check_store(self) -> None:
        """Raise if the store refuses writes, before the master begins to send."""
        if (refusal := self._refusal()) is not None:
            raise refusal
        if self._state is SlaveState.FAILED and self._log.end:
            # It was full, or could not create the next segment, which is needed next.
            self._store.raw_room(1)

    def _refusal(self) -> StoreError | None:
        return self._store.refusal_error()

    # --- one connection ----------------------------------------------------------------------

    async def _attempt(self, address: str) -> LinkEnd:
        """Connect once and replicate as long as the connection lasts; return how it ended."""
        try:
            dialling = self._dialling
            if dialling.dialect != "stock":
                ending = await self._serve(address, is_native=True)
                if ending.kind is not EndKind.NOT_NATIVE:
                    return ending
                if dialling.dialect == "native" or self._settings.secret or dialling.tls_context:
                    return LinkEnd(
                        EndKind.REFUSED,
                        f"the master at {address} does not answer as a native one, and haDialect,"
                        " haSecret or TLS ask for that",
                    )
            return await self._follow_stock(address)
        except OSError as exc:
            return LinkEnd(EndKind.CLOSED, f"cannot connect to {address}: {exc.strerror or exc}")

    async def _follow_stock(self, address: str) -> LinkEnd:
        end = PhysicalOffset(0)
        if self._master_address is None:
            logger.log(
                logging.DEBUG if self._warned_unasked else logging.WARNING,
                "the stock master at %s cannot be asked about its log, because its remoting address"
                " is not known: it is followed as it is",
                address,
            )
            self._warned_unasked = True
        else:
            if self._dialling.dialect == "auto" and await self._is_ours(self._master_address):
                self._was_native = True
                return LinkEnd(
                    EndKind.CLOSED,
                    f"the master at {address} speaks the native dialect, but did not answer in time"
                    " when it was greeted: it is greeted again",
                )
            found = await self._examine(self._master_address, self._settings.catch_up)
            if isinstance(found, LinkEnd):
                return found
            end = found.end
        return await self._serve(address, is_native=False, end=end)

    async def _is_ours(self, address: str) -> bool:
        if self._dialling.client is not None:
            return await stock_master.is_ours(self._dialling.client, address)
        async with open_client() as client:
            return await stock_master.is_ours(client, address)

    async def _examine(self, address: str, catch_up: CatchUp) -> LinkEnd | stock_master.Extent:
        client = self._dialling.client
        if client is not None:
            return await stock_master.examine(client, address, self._store, catch_up)
        # An error of the store must not come out of the client's tasks as a group.
        failure: StoreError | None = None
        found: LinkEnd | stock_master.Extent | None = None
        async with open_client() as own_client:
            try:
                found = await stock_master.examine(own_client, address, self._store, catch_up)
            except StoreError as exc:
                failure = exc
        if failure is not None:
            raise failure
        assert found is not None
        return found

    async def _serve(
        self, address: str, *, is_native: bool, end: PhysicalOffset = PhysicalOffset(0)
    ) -> LinkEnd:
        """Connect in one dialect and receive; `end` is where the master's log is known to end."""
        epoch, dialling = self._listener.epoch(), self._dialling
        dialled_at = trio.current_time()
        connection = await dial(
            address, dialling.tls_context, CONNECT_S, master_name=dialling.tls_master_name
        )
        self._connects += 1
        self._received_before = self.counters.received_bytes
        settings = self._settings
        if self._was_native:
            settings = replace(settings, native_wait_s=math.inf)
        else:
            round_trip_s = trio.current_time() - dialled_at
            wait_s = max(settings.native_wait_s, ROUND_TRIPS * round_trip_s)
            settings = replace(settings, native_wait_s=wait_s)
        link = SlaveLink(
            settings,
            self._log,
            is_native=is_native,
            epoch=epoch,
            nonce=os.urandom(NONCE_BYTES),
            now=trio.current_time(),
            is_current=self._listener.is_current,
        )
        link.master.end = end
        # The last state of the master stays until this connection brings a newer one.
        self._link, self._news = link, None
        if not is_native:
            self._master = link.master
        receiver = Receiver(
            self._store,
            self._log,
            link,
            connection,
            self._listener,
            on_turn=self._note_turn,
            counters=self.counters,
        )
        ending = await receiver.run()
        if receiver.failure is not None:
            raise receiver.failure
        return ending

    def _note_turn(self, now: float) -> None:
        """Update state and waiters after a turn of receiving."""
        link = self._link
        if link is None or not link.is_streaming or link.ending is not None:
            return
        end, master = self._log.end, link.master
        self._master = master
        if self._state not in _LIVE:
            self._was_native = link.is_native
            self._last_error = self._diverged_at = None
            self._enter(SlaveState.CATCHING_UP)
            self._live_at = now
            logger.info(
                "following the %s master at %s from %d on",
                "native" if link.is_native else "stock",
                self._ha_address,
                end,
            )
        if self._failure_told is not None and self.counters.received_bytes > self._received_before:
            self._failure_told = None
            logger.info("replication resumed, the store accepts writes again")
        if end >= master.end:
            self._caught_up_at = now
            if self._state is SlaveState.CATCHING_UP:
                self._enter(SlaveState.STREAMING)
        if master.news != self._news:
            self._news = master.news
            self._listener.news()
        for offset, event in self._waits:
            if offset <= end:
                event.set()

    def _enter(self, state: SlaveState) -> None:
        if state is not self._state:
            self._state, self._since = state, trio.current_time()
