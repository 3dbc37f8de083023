"""What applications open on trio: each for the length of a block, in the task that opens it.

Each function imports what it opens: a command that asks a question loads no consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rmq.client.trio.loop import TRIO

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import LitePullOptions, PushConsumerOptions
    from rmq.client.core.consuming.subscription_set import Subscriptions
    from rmq.client.core.producing.config import ProducerOptions
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks import (
        admin,
        client,
        lite_pull,
        producer,
        pull_consumer,
        push_consumer,
        tracing,
        transactions,
    )
    from rmq.client.tasks.listener_pool import Listener


def open_client(
    config: ClientConfig | str, *, is_stream: bool = False
) -> AbstractAsyncContextManager[client.Client]:
    """Run a client; text stands for the addresses of nameservers."""
    from rmq.client.tasks import client

    return client.open_client(TRIO, config, is_stream=is_stream)


def open_admin(config: ClientConfig | str) -> AbstractAsyncContextManager[admin.AdminClient]:
    """Run an admin client; text stands for the addresses of nameservers."""
    from rmq.client.tasks import admin

    return admin.open_admin(TRIO, config)


def open_producer(
    nameservers: ClientConfig | str,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> AbstractAsyncContextManager[producer.Producer]:
    """Run a producer with a client of its own.

    `options` are the settings of `ProducerConfig`. Traces are written if `tracer` is given, or the
    client's config names a topic for them.
    """
    from rmq.client.tasks import producer

    return producer.open_producer(TRIO, nameservers, group, tracer=tracer, **options)


def open_transaction_producer(
    nameservers: ClientConfig | str,
    group: str,
    check: transactions.Check,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> AbstractAsyncContextManager[transactions.TransactionProducer]:
    """Run a transaction producer with a client of its own; `options` as for `open_producer`."""
    from rmq.client.tasks import transactions

    return transactions.open_transaction_producer(
        TRIO, nameservers, group, check, tracer=tracer, **options
    )


def open_push_consumer(
    nameservers: ClientConfig | str,
    group: str,
    subscriptions: Subscriptions,
    listener: Listener,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[PushConsumerOptions],
) -> AbstractAsyncContextManager[push_consumer.PushConsumer]:
    """Run a consumer with a client of its own; `options` are those of `PushConsumerConfig`."""
    from rmq.client.tasks import push_consumer

    return push_consumer.open_push_consumer(
        TRIO, nameservers, group, subscriptions, listener, tracer=tracer, **options
    )


def open_lite_pull_consumer(
    nameservers: ClientConfig | str,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[LitePullOptions],
) -> AbstractAsyncContextManager[lite_pull.LitePullConsumer]:
    """Run a lite pull consumer with a client of its own; `options` of `LitePullConfig`."""
    from rmq.client.tasks import lite_pull

    return lite_pull.open_lite_pull_consumer(TRIO, nameservers, group, tracer=tracer, **options)


def open_pull_consumer(
    nameservers: ClientConfig | str, group: str
) -> AbstractAsyncContextManager[pull_consumer.PullConsumer]:
    """Run a pull consumer with a client of its own."""
    from rmq.client.tasks import pull_consumer

    return pull_consumer.open_pull_consumer(TRIO, nameservers, group)


def open_tracing(
    config: ClientConfig | str, group: str, role: tracing.TraceRole, *, topic: str | None = None
) -> AbstractAsyncContextManager[tracing.MessageTracer]:
    """Run a tracer for a producer or consumer of a group, with a client of its own."""
    from rmq.client.tasks import tracing

    return tracing.open_tracing(TRIO, config, group, role, topic=topic)
