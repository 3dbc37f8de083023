"""Resync of a slave: its log is cut to what it has in common with its master's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.replication.changes.refusal import refuse
from rmq.broker.replication.log_comparison import (
    STEPS,
    common_prefix,
    common_records,
    count_records,
    record_ends,
)
from rmq.errors import ClientError, ResponseError
from rmq.ha.slave_status import SlaveState
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaDigestsBody, HaResyncBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaDigestsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.broker.replication.peers import Peers
    from rmq.broker.replication.role import Replication
    from rmq.store.store import MessageStore

DIGESTS_S: Final = 60.0
"""How long a master may take to read what is compared."""


@final
class Resync:
    """Compares the log of this slave with its master's, and cuts what differs."""

    def __init__(
        self,
        store: MessageStore,
        replication: Replication,
        peers: Peers,
        request_reopen: Callable[[int | None, str], Awaitable[None]],
    ) -> None:
        """`request_reopen` opens the store again, cut at an offset, or empty for None."""
        self._store = store
        self._replication = replication
        self._peers = peers
        self._request_reopen = request_reopen

    async def run(self, dry_run: bool, planned: tuple[int, int] | None = None) -> HaResyncBody:
        """Cut what differs, and follow the master again; with `dry_run` only tell what differs.

        Refuse if the ends of the common part and of the log are not those that were `planned`.
        """
        replication = self._replication
        if replication.is_master:
            refuse("a master is never cut; resync its slave")
        master = replication.master_address
        if master is None:
            refuse("no nameserver knows a master of this broker")
        if self._is_outrun():
            # The two logs overlap nowhere, or cannot be compared.
            common_end, master_end = -1, replication.slave_role.master_end
        else:
            common_end, master_end = await self._common_end(master)
        local_end = replication.log.end
        if planned is not None and planned != (common_end, local_end):
            refuse(
                f"nothing was cut: the logs are the same up to {common_end} and this one ends at"
                f" {local_end}, not as planned (up to {planned[0]}, {planned[1]}); compare again"
            )
        begin = replication.log.begin
        is_reseed = common_end <= begin
        cut_from = begin if is_reseed else PhysicalOffset(common_end)
        cut_messages = await trio.to_thread.run_sync(
            count_records, self._store.log, cut_from, local_end
        )
        answer = HaResyncBody(
            common_end=common_end,
            local_end=local_end,
            master_end=master_end,
            master_address=master,
            cut_bytes=local_end - cut_from,
            cut_messages=cut_messages,
            is_reseed=is_reseed and local_end > begin,
            dry_run=dry_run,
        )
        if not dry_run and local_end > cut_from:
            reason = f"resync with the master at {master}"
            await self._request_reopen(None if is_reseed else common_end, reason)
        return answer

    def _is_outrun(self) -> bool:
        slave = self._replication.slave
        return slave is not None and slave.status.state is SlaveState.OUTRUN

    async def _common_end(self, master: str) -> tuple[int, int]:
        """Return the end of the common prefix of both logs, and the end of the master's.

        The first is the end of a message here.
        """

        async def ask(start: int, stop: int, step: int) -> HaDigestsBody:
            header = HaDigestsRequest(start=start, stop=stop, step=step)
            try:
                answer = await self._peers.ask(
                    master, RequestCode.HA_DIGESTS, header, timeout_s=DIGESTS_S
                )
            except ResponseError as exc:
                if exc.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    refuse(
                        f"the master at {master} is of another make and cannot be compared with:"
                        " stop this slave, empty its store and start it again"
                    )
                refuse(str(exc))
            except ClientError as exc:
                refuse(str(exc))
            return HaDigestsBody.decode(answer.body)

        log, store = self._replication.log, self._store
        same_until, master_end = await common_prefix(log, ask)
        boundary = await trio.to_thread.run_sync(store.record_boundary, same_until)
        # The ranges are coarser than messages: some of the next messages may be equal still.
        ends = await trio.to_thread.run_sync(
            record_ends, store.log, boundary, same_until + STEPS[-1]
        )
        return await common_records(log, ask, boundary, ends, master_end), master_end
