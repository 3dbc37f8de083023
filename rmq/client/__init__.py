"""The RocketMQ client for Python, on trio.

`rmq.client.blocking` is a client without a loop: producers, consumers of assigned queues and admin
calls. It has no push consumers, no sharing of queues within a group, no transactions, no request
and reply and no message trace; docs/client.md has the whole list.

    from rmq.client import Message, open_producer

    async with open_producer("10.0.0.5:9876", "orders") as producer:
        await producer.send(Message("Orders", b"..."))

The names below are what applications use; docs/client.md shows each of them at work. They are
imported when they are first asked for: blocking clients must not import trio.

Inside, `core` is free of I/O: everything a client says to nameservers and brokers is a flow
(`core.flows`). `trio` and `blocking` run flows on connections.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import (
        ConsumeFrom,
        LitePullConfig,
        MessageModel,
        PushConsumerConfig,
    )
    from rmq.client.core.consuming.results import ConsumeResult, Later
    from rmq.client.core.consuming.subscription_set import Sql
    from rmq.client.core.messages import Message, SendResult, SendStatus, TransactionState
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.trio.admin import AdminClient, open_admin
    from rmq.client.trio.client import Client, open_client
    from rmq.client.trio.lite_pull import LitePullConsumer, lite_pulling, open_lite_pull_consumer
    from rmq.client.trio.producer import Producer, open_producer, producing
    from rmq.client.trio.pull_consumer import PullConsumer, open_pull_consumer, pulling
    from rmq.client.trio.push_consumer import PushConsumer, consuming, open_push_consumer
    from rmq.client.trio.transactions import (
        TransactionProducer,
        open_transaction_producer,
        transacting,
    )
    from rmq.model.queues import MessageQueue
    from rmq.remoting.signing import Credentials

__all__ = [
    "AdminClient",
    "Client",
    "ClientConfig",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "Later",
    "LitePullConfig",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PushConsumer",
    "PushConsumerConfig",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Sql",
    "TransactionProducer",
    "TransactionState",
    "consuming",
    "lite_pulling",
    "open_admin",
    "open_client",
    "open_lite_pull_consumer",
    "open_producer",
    "open_pull_consumer",
    "open_push_consumer",
    "open_transaction_producer",
    "producing",
    "pulling",
    "transacting",
]

_HOMES: Final = {
    "rmq.remoting.signing": ("Credentials",),
    "rmq.client.trio.admin": ("AdminClient", "open_admin"),
    "rmq.client.trio.client": ("Client", "open_client"),
    "rmq.client.core.config": ("ClientConfig",),
    "rmq.client.core.consuming.results": ("ConsumeResult", "Later"),
    "rmq.client.core.consuming.config": (
        "ConsumeFrom",
        "LitePullConfig",
        "MessageModel",
        "PushConsumerConfig",
    ),
    "rmq.client.trio.lite_pull": ("LitePullConsumer", "lite_pulling", "open_lite_pull_consumer"),
    "rmq.client.core.messages": ("Message", "SendResult", "SendStatus", "TransactionState"),
    "rmq.client.trio.producer": ("Producer", "open_producer", "producing"),
    "rmq.client.core.producing.config": ("ProducerConfig",),
    "rmq.client.trio.pull_consumer": ("PullConsumer", "open_pull_consumer", "pulling"),
    "rmq.client.trio.push_consumer": ("PushConsumer", "consuming", "open_push_consumer"),
    "rmq.client.core.received": ("ReceivedMessage",),
    "rmq.client.core.consuming.subscription_set": ("Sql",),
    "rmq.client.trio.transactions": (
        "TransactionProducer",
        "open_transaction_producer",
        "transacting",
    ),
    "rmq.model.queues": ("MessageQueue",),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
