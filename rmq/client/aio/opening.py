"""What applications open on asyncio: each for the length of a block, or from `open` to `close`.

Each function imports what it opens: a program that sends loads no consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rmq.client.aio.loop import AIO
from rmq.client.aio.opened import Opened

if TYPE_CHECKING:
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import (
        LitePullConfig,
        LitePullOptions,
        PushConsumerConfig,
        PushConsumerOptions,
    )
    from rmq.client.core.consuming.subscription_set import Subscriptions
    from rmq.client.core.producing.config import ProducerConfig, ProducerOptions
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


def open_client(config: ClientConfig | str, *, is_stream: bool = False) -> Opened[client.Client]:
    """Run a client; text stands for the addresses of nameservers."""
    from rmq.client.tasks import client

    return Opened(
        lambda: client.open_client(AIO, config, is_stream=is_stream),
        "a client of rmq",
    )


def open_admin(config: ClientConfig | str) -> Opened[admin.AdminClient]:
    """Run an admin client; text stands for the addresses of nameservers."""
    from rmq.client.tasks import admin

    return Opened(
        lambda: admin.open_admin(AIO, config),
        "an admin client of rmq",
    )


def open_producer(
    nameservers: ClientConfig | str,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> Opened[producer.Producer]:
    """Run a producer with a client of its own.

    `options` are the settings of `ProducerConfig`. Traces are written if `tracer` is given, or the
    client's config names a topic for them.
    """
    from rmq.client.tasks import producer

    return Opened(
        lambda: producer.open_producer(AIO, nameservers, group, tracer=tracer, **options),
        f"producer {group}",
    )


def open_transaction_producer(
    nameservers: ClientConfig | str,
    group: str,
    check: transactions.Check,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> Opened[transactions.TransactionProducer]:
    """Run a transaction producer with a client of its own; `options` as for `open_producer`."""
    from rmq.client.tasks import transactions

    return Opened(
        lambda: transactions.open_transaction_producer(
            AIO, nameservers, group, check, tracer=tracer, **options
        ),
        f"transaction producer {group}",
    )


def open_push_consumer(
    nameservers: ClientConfig | str,
    group: str,
    subscriptions: Subscriptions,
    listener: Listener,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[PushConsumerOptions],
) -> Opened[push_consumer.PushConsumer]:
    """Run a consumer with a client of its own; `options` are those of `PushConsumerConfig`."""
    from rmq.client.tasks import push_consumer

    return Opened(
        lambda: push_consumer.open_push_consumer(
            AIO, nameservers, group, subscriptions, listener, tracer=tracer, **options
        ),
        f"push consumer of group {group}",
    )


def open_lite_pull_consumer(
    nameservers: ClientConfig | str,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[LitePullOptions],
) -> Opened[lite_pull.LitePullConsumer]:
    """Run a lite pull consumer with a client of its own; `options` of `LitePullConfig`."""
    from rmq.client.tasks import lite_pull

    return Opened(
        lambda: lite_pull.open_lite_pull_consumer(
            AIO, nameservers, group, tracer=tracer, **options
        ),
        f"lite pull consumer of group {group}",
    )


def open_pull_consumer(
    nameservers: ClientConfig | str, group: str
) -> Opened[pull_consumer.PullConsumer]:
    """Run a pull consumer with a client of its own."""
    from rmq.client.tasks import pull_consumer

    return Opened(
        lambda: pull_consumer.open_pull_consumer(AIO, nameservers, group),
        f"pull consumer of group {group}",
    )


def open_tracing(
    config: ClientConfig | str, group: str, role: tracing.TraceRole, *, topic: str | None = None
) -> Opened[tracing.MessageTracer]:
    """Run a tracer for a producer or consumer of a group, with a client of its own."""
    from rmq.client.tasks import tracing

    return Opened(
        lambda: tracing.open_tracing(AIO, config, group, role, topic=topic),
        f"tracer of group {group}",
    )


def producing(
    shared: client.Client, config: ProducerConfig, *, tracer: Tracer | None = None
) -> Opened[producer.Producer]:
    """Run a producer on a client that others may share."""
    from rmq.client.tasks import producer

    return Opened(
        lambda: producer.producing(shared, config, tracer=tracer), f"producer {config.group}"
    )


def transacting(
    shared: client.Client,
    config: ProducerConfig,
    check: transactions.Check,
    *,
    tracer: Tracer | None = None,
) -> Opened[transactions.TransactionProducer]:
    """Run a transaction producer on a client that others may share."""
    from rmq.client.tasks import transactions

    return Opened(
        lambda: transactions.transacting(shared, config, check, tracer=tracer),
        f"transaction producer {config.group}",
    )


def consuming(
    shared: client.Client,
    config: PushConsumerConfig,
    subscriptions: Subscriptions,
    listener: Listener,
    *,
    tracer: Tracer | None = None,
) -> Opened[push_consumer.PushConsumer]:
    """Run a consumer on a client that is shared."""
    from rmq.client.tasks import push_consumer

    return Opened(
        lambda: push_consumer.consuming(shared, config, subscriptions, listener, tracer=tracer),
        f"push consumer of group {config.group}",
    )


def lite_pulling(
    shared: client.Client, config: LitePullConfig, *, tracer: Tracer | None = None
) -> Opened[lite_pull.LitePullConsumer]:
    """Pull with a shared client, which was opened with `is_stream=True` as stock clients are."""
    from rmq.client.tasks import lite_pull

    return Opened(
        lambda: lite_pull.lite_pulling(shared, config, tracer=tracer),
        f"lite pull consumer of group {config.group}",
    )


def pulling(shared: client.Client, group: str) -> Opened[pull_consumer.PullConsumer]:
    """Pull with a shared client."""
    from rmq.client.tasks import pull_consumer

    return Opened(lambda: pull_consumer.pulling(shared, group), f"pull consumer of group {group}")
