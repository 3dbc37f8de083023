"""Settings of a running broker: UPDATE_BROKER_CONFIG (25) and GET_BROKER_CONFIG (26).

An update takes effect at once or says which keys wait for a restart, and is in the file before it
is answered. Where RocketMQ 4.9.8 skips what it does not know, an update with an unknown key or a
value that makes no sense is refused as a whole, and so is one that changes a guarded setting
without admin rights.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio

from rmq.broker.config.live import BLACK_LIST_REMARK
from rmq.broker.config.schema import SCHEMA
from rmq.errors import ConfigError, ProtocolError, RefusedError, StorageError
from rmq.remoting.bodies import format_properties, parse_properties
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import EmptyHeader, GetBrokerConfigResponse
from rmq.remoting.protocol import Requests
from rmq.settings.guard import guarded_remark, shown_changes, without_masks

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import LiveConfig
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

ALWAYS_BLACK_LISTED: Final = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
"""What cannot be changed this way, whatever the black list of the settings says."""


@final
class SettingHandlers:
    """Shows and changes settings."""

    def __init__(
        self,
        live: LiveConfig,
        *,
        now_ms: Callable[[], int],
        is_admin: Callable[[Request[Any]], bool],
    ) -> None:
        """`is_admin` tells whether the sender of a request has admin rights."""
        self._live = live
        self._now_ms = now_ms
        self._is_admin = is_admin

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.UPDATE_BROKER_CONFIG, self.update)
        table.add(Requests.GET_BROKER_CONFIG, self.show)

    async def update(self, request: Request[EmptyHeader]) -> None:
        """25 UPDATE_BROKER_CONFIG."""
        try:
            changes = without_masks(SCHEMA, parse_properties(request.body))
            if not ALWAYS_BLACK_LISTED.isdisjoint(changes):
                raise RefusedError(ResponseCode.NO_PERMISSION, BLACK_LIST_REMARK)
            guarded = self._live.guarded(changes)
            if guarded and not self._is_admin(request):
                raise RefusedError(ResponseCode.NO_PERMISSION, guarded_remark(guarded))
            outcome = self._live.update(changes, now_ms=self._now_ms())
        except (ConfigError, ProtocolError) as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from None
        logger.info(
            "settings changed by %s: %s", request.channel.peer, shown_changes(SCHEMA, changes)
        )
        try:
            await trio.to_thread.run_sync(self._live.persist)
        except StorageError as exc:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"in force until the next restart, but not saved: {exc}"
            ) from None
        remarks: list[str] = []
        if outcome.needs_restart:
            remarks.append(
                f"takes effect after a restart: {', '.join(sorted(outcome.needs_restart))}"
            )
        if outcome.ignored:
            remarks.append(f"has no meaning here: {', '.join(sorted(outcome.ignored))}")
        for remark in remarks:
            logger.info("%s", remark)
        request.reply(remark="; ".join(remarks) or None)

    def show(self, request: Request[EmptyHeader]) -> None:
        """26 GET_BROKER_CONFIG."""
        version = self._live.version.encode().decode()
        request.reply(
            GetBrokerConfigResponse(version=version),
            body=format_properties(self._live.as_properties()),
        )
