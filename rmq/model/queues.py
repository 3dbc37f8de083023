"""The address of one queue of a topic, as clients and brokers name it to each other."""

from __future__ import annotations

from typing import Annotated

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True, order=True, rename="camel"):
    """One numbered queue of a topic, on the brokers of one name.

    Queues sort by topic, then broker name, then number, because every member of a consumer group
    must deal the same queues out in the same order.
    """

    topic: str
    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
