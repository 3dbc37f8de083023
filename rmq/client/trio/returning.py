"""Runs what `rmq.client.core.consuming.send_back` says, for one consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

from rmq.client.core.consuming.send_back import BROKER_DECIDES, resend, send_back

if TYPE_CHECKING:
    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.trio.client import Client

_UNLIMITED: Final = 2**31 - 1


@final
class Returning:
    """Gives messages of a group back. Both methods raise `ClientError` if nobody takes them."""

    def __init__(self, client: Client, config: PushConsumerConfig) -> None:
        self._client = client
        self._group = config.group
        self._rounds_max = _UNLIMITED if config.retries_max is None else config.retries_max

    async def later(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have a message delivered to the group again."""
        await self._client.run(
            send_back(
                self._client.routes,
                message,
                group=self._group,
                delay_level=delay_level,
                reconsume_max=self._rounds_max,
                now_ms=time.time_ns() // 1_000_000,
            )
        )

    async def give_up(self, message: ReceivedMessage) -> None:
        """Make a message a dead letter that had as many rounds as it may have."""
        await self._client.run(
            resend(
                self._client.routes,
                message,
                group=self._group,
                delay_level=BROKER_DECIDES,
                reconsume_times=max(message.reconsume_times, self._rounds_max),
                reconsume_max=self._rounds_max,
                now_ms=time.time_ns() // 1_000_000,
            )
        )
