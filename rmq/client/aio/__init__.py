"""The RocketMQ client for Python, on asyncio: FastAPI, uvicorn, uvloop, notebooks.

    from rmq.client.aio import Message, open_producer

    async with open_producer("10.0.0.5:9876", "orders") as producer:
        await producer.send(Message("Orders", b"..."))

The names are those of `rmq.client`, which is on trio, and do the same: all but connections and
wake-ups is the same code (`rmq.client.tasks`). What is opened here lives in a task of its own
(`opened`), so that any task may close it.

Reading order: `connection`, `connections`, `waiting` and `loop`, then `opened` and `opening`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmq.client.aio.opening import (
        consuming,
        lite_pulling,
        open_admin,
        open_client,
        open_lite_pull_consumer,
        open_producer,
        open_pull_consumer,
        open_push_consumer,
        open_transaction_producer,
        producing,
        pulling,
        transacting,
    )
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
    from rmq.client.tasks.lite_pull import LitePullConsumer
    from rmq.client.tasks.producer import Producer
    from rmq.client.tasks.pull_consumer import PullConsumer
    from rmq.client.tasks.push_consumer import PushConsumer
    from rmq.client.tasks.transactions import TransactionProducer, TransactionResult
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
    "rmq.client.tasks.lite_pull": ("LitePullConsumer",),
    "rmq.client.tasks.producer": ("Producer",),
    "rmq.client.tasks.pull_consumer": ("PullConsumer",),
    "rmq.client.tasks.push_consumer": ("PushConsumer",),
    "rmq.client.tasks.transactions": (
        "TransactionProducer",
        "TransactionResult",
    ),
    "rmq.client.aio.opening": (
        "consuming",
        "lite_pulling",
        "producing",
        "pulling",
        "transacting",
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
