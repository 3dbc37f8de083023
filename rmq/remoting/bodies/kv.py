"""Tables of text by text."""

import msgspec

from rmq.remoting.bodies.base import Body


class KVTable(Body, frozen=True, kw_only=True):
    """The answer to 28, GET_BROKER_RUNTIME_INFO, 103, REGISTER_BROKER, and 219, all of a namespace.

    The answer to a registration holds the queues per broker of ordered topics. It has no body at
    all when no topic was ever made ordered, which is not the same as an empty table.
    """

    table: dict[str, str] = msgspec.field(default_factory=dict)
