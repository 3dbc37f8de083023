"""The RocketMQ client for Python, on trio.

`rmq.client.aio` is the same client on asyncio. `rmq.client.blocking` is a client without a loop:
producers, consumers of assigned queues and admin calls. It has no push consumers, no sharing of
queues within a group, no transactions, no request and reply and no message trace; docs/client.md
has the whole list.

    from rmq.client import Message, open_producer

    async with open_producer("10.0.0.5:9876", "orders") as producer:
        await producer.send(Message("Orders", b"..."))

The names below are what applications use; docs/client.md shows each of them at work. They are
imported when they are first asked for: blocking clients must not import trio.

Inside, `core` is free of I/O: everything a client says to nameservers and brokers is a flow
(`core.flows`). `tasks` has what runs as tasks of an event loop, `trio` and `aio` what the two loops
do differently, `blocking` runs flows on sockets.
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
    from rmq.client.core.consuming.pulls import PullResult, PullStatus
    from rmq.client.core.consuming.results import ConsumeResult, Later, ListenerResult
    from rmq.client.core.consuming.subscription_set import Sql
    from rmq.client.core.message_metrics import MessageMetrics
    from rmq.client.core.messages import Message, SendResult, SendStatus, TransactionState
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.delivery import BatchFailedError
    from rmq.client.core.received import ReceivedMessage, UnreadableBodyError
    from rmq.client.tasks.admin import AdminClient
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.listener_pool import Listener
    from rmq.client.tasks.lite_pull import LitePullConsumer, lite_pulling
    from rmq.client.tasks.producer import Producer, producing
    from rmq.client.tasks.pull_consumer import PullConsumer, pulling
    from rmq.client.tasks.push_consumer import PushConsumer, consuming
    from rmq.client.tasks.transactions import TransactionProducer, TransactionResult, transacting
    from rmq.client.trio.opening import (
        open_admin,
        open_client,
        open_lite_pull_consumer,
        open_producer,
        open_pull_consumer,
        open_push_consumer,
        open_transaction_producer,
    )
    from rmq.errors import (
        BadAnswerError,
        BrokersFailedError,
        ClientClosedError,
        ClientError,
        ConfigError,
        ConnectFailedError,
        ConnectionLostError,
        IllegalMessageError,
        NoNameserverError,
        NoRouteError,
        NotAssignedError,
        OffsetOutOfRangeError,
        RequestTimeoutError,
        ResponseError,
        RmqError,
        SendFailedError,
        SharedUseError,
        TooManyRequestsError,
        WrongLoopError,
    )
    from rmq.model.queues import MessageQueue
    from rmq.remoting.signing import Credentials
    from rmq.remoting.tls_config import TlsClientConfig

__all__ = [
    "AdminClient",
    "BadAnswerError",
    "BatchFailedError",
    "BrokersFailedError",
    "Client",
    "ClientClosedError",
    "ClientConfig",
    "ClientError",
    "ConfigError",
    "ConnectFailedError",
    "ConnectionLostError",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "IllegalMessageError",
    "Later",
    "Listener",
    "ListenerResult",
    "LitePullConfig",
    "LitePullConsumer",
    "Message",
    "MessageMetrics",
    "MessageModel",
    "MessageQueue",
    "NoNameserverError",
    "NoRouteError",
    "NotAssignedError",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerConfig",
    "ReceivedMessage",
    "RequestTimeoutError",
    "ResponseError",
    "RmqError",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "SharedUseError",
    "Sql",
    "TlsClientConfig",
    "TooManyRequestsError",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "UnreadableBodyError",
    "WrongLoopError",
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
    "rmq.client.core.config": ("ClientConfig",),
    "rmq.client.core.consuming.config": (
        "ConsumeFrom",
        "LitePullConfig",
        "MessageModel",
        "PushConsumerConfig",
    ),
    "rmq.client.core.consuming.pulls": (
        "PullResult",
        "PullStatus",
    ),
    "rmq.client.core.consuming.results": (
        "ConsumeResult",
        "Later",
        "ListenerResult",
    ),
    "rmq.client.core.consuming.subscription_set": ("Sql",),
    "rmq.client.core.message_metrics": ("MessageMetrics",),
    "rmq.client.core.messages": (
        "Message",
        "SendResult",
        "SendStatus",
        "TransactionState",
    ),
    "rmq.client.core.producing.config": ("ProducerConfig",),
    "rmq.client.core.producing.delivery": ("BatchFailedError",),
    "rmq.client.core.received": (
        "ReceivedMessage",
        "UnreadableBodyError",
    ),
    "rmq.client.tasks.admin": ("AdminClient",),
    "rmq.client.tasks.client": ("Client",),
    "rmq.client.tasks.listener_pool": ("Listener",),
    "rmq.client.tasks.lite_pull": (
        "LitePullConsumer",
        "lite_pulling",
    ),
    "rmq.client.tasks.producer": (
        "Producer",
        "producing",
    ),
    "rmq.client.tasks.pull_consumer": (
        "PullConsumer",
        "pulling",
    ),
    "rmq.client.tasks.push_consumer": (
        "PushConsumer",
        "consuming",
    ),
    "rmq.client.tasks.transactions": (
        "TransactionProducer",
        "TransactionResult",
        "transacting",
    ),
    "rmq.client.trio.opening": (
        "open_admin",
        "open_client",
        "open_lite_pull_consumer",
        "open_producer",
        "open_pull_consumer",
        "open_push_consumer",
        "open_transaction_producer",
    ),
    "rmq.errors": (
        "BadAnswerError",
        "BrokersFailedError",
        "ClientClosedError",
        "ClientError",
        "ConfigError",
        "ConnectFailedError",
        "ConnectionLostError",
        "IllegalMessageError",
        "NoNameserverError",
        "NoRouteError",
        "NotAssignedError",
        "OffsetOutOfRangeError",
        "RequestTimeoutError",
        "ResponseError",
        "RmqError",
        "SendFailedError",
        "SharedUseError",
        "TooManyRequestsError",
        "WrongLoopError",
    ),
    "rmq.model.queues": ("MessageQueue",),
    "rmq.remoting.signing": ("Credentials",),
    "rmq.remoting.tls_config": ("TlsClientConfig",),
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
