"""From where a nameserver takes changes.

Two lists of networks, both empty at first, which means everywhere, as in RocketMQ 4.9.8:

- brokers: who may register and unregister brokers and keep in-sync records;
- operators: who may change the KV config, settings, permissions and topics.

Routes are told to everyone. Pure; a dispatcher asks before a handler sees a request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.errors import HeaderError, RefusedError
from rmq.log_limits import LimitedLog, host_of
from rmq.model.in_sync_record import NAMESPACE as IN_SYNC_NAMESPACE
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import DeleteKvConfigRequest, PutKvConfigRequest
from rmq.remoting.request import name_of
from rmq.settings.networks import is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.nameserver.config import NameserverConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.settings.networks import Network

logger = logging.getLogger(__name__)

BROKER_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        # Keeps a broker listed.
        RequestCode.QUERY_DATA_VERSION,
    }
)
OPERATOR_CODES: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    }
)


@final
class AddressRules:
    """A guard of requests; `check` raises for those that are not taken from where they come."""

    def __init__(
        self,
        config: NameserverConfig,
        now: Callable[[], float],
    ) -> None:
        self._config = config
        self._now = now
        self._lines = LimitedLog(logger)

    def check(self, channel: Channel, command: Command) -> None:
        """Raise `RefusedError` if the request is not taken from this peer."""
        brokers, operators = self._config.registration_allowed, self._config.admin_allowed
        if not brokers and not operators:
            return
        if command.code in BROKER_CODES:
            self._check(brokers, "registrationAllowedAddresses", channel, command)
        elif command.code == RequestCode.PUT_KV_CONFIG and _is_record(command, PutKvConfigRequest):
            # Brokers keep these themselves.
            self._check(brokers, "registrationAllowedAddresses", channel, command)
        elif command.code in OPERATOR_CODES:
            self._check(operators, "adminAllowedAddresses", channel, command)
            if not operators and _is_record(command, DeleteKvConfigRequest):
                self._check(brokers, "registrationAllowedAddresses", channel, command)

    def summarize(self) -> None:
        """Log how many lines were suppressed."""
        self._lines.summarize(self._now())

    def _check(
        self, allowed: tuple[Network, ...], key: str, channel: Channel, command: Command
    ) -> None:
        host = host_of(channel.peer).removeprefix("[").removesuffix("]")
        if is_allowed(allowed, host):
            return
        what = name_of(command)
        self._lines.warning(
            key, host, self._now(), "refused %s of %s: %s does not allow it", what, host, key
        )
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"{what} is not taken from {host}: the nameserver's setting {key} does not allow it",
        )


def _is_record(
    command: Command, header_class: type[PutKvConfigRequest | DeleteKvConfigRequest]
) -> bool:
    """Whether a request is about an in-sync record."""
    try:
        return command.header(header_class).namespace == IN_SYNC_NAMESPACE
    except HeaderError:
        return False
