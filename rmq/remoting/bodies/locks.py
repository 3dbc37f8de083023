"""Requests 41 and 42, LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues that one orderly consumer holds."""

import msgspec

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.base import Body


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues a client wants to lock, or whose locks it renews."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()


class LockBatchResponseBody(Body, frozen=True, kw_only=True):
    """The queues that are locked now by the client that asked."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = msgspec.field(default=(), name="lockOKMQSet")


class UnlockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues a client gives back."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
