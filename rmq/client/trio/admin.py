"""The admin client: what `rmq.client.core.admin` can ask, as methods of one object.

    async with open_admin("10.0.0.5:9876") as admin:
        await admin.create_topic("Orders", queues=8)
        progress = await admin.group_progress("billing")
        print(progress.lag, [str(failure) for failure in progress.failures])

Each method has the arguments and the result of the flow of its name; what it does stands there. A
read from several brokers says in `failures` who did not answer. A change that did not happen
everywhere raises `BrokersFailedError`, which says where it did.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, final

from rmq.client.core.admin import (
    accounts,
    brokers,
    clients,
    groups,
    messages,
    nameservers,
    offsets,
    topics,
    tracks,
)
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.config import ClientConfig
from rmq.client.trio.client import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.trio.client import Client

T = TypeVar("T")
P = ParamSpec("P")


def _runs(
    flow: Callable[Concatenate[Nameservers, P], Flow[T]],
) -> Callable[Concatenate[AdminClient, P], Coroutine[Any, Any, T]]:
    """Return a method that runs a flow."""

    @wraps(flow)
    async def method(admin: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await admin.client.run(flow(admin.client.nameservers, *args, **kwargs))

    return method


@final
class AdminClient:
    """Asks and changes what operators care for. Use `open_admin` to get one."""

    def __init__(self, client: Client) -> None:
        """`client` may be shared with producers and consumers."""
        self.client = client

    async def run(self, flow: Flow[T]) -> T:
        """Run any other flow on the same connections."""
        return await self.client.run(flow)

    # --- topics -------------------------------------------------------------------------------

    list_topics = _runs(topics.list_topics)
    list_system_topics = _runs(topics.list_system_topics)
    broker_system_topics = _runs(topics.broker_system_topics)
    topic_configs = _runs(topics.topic_configs)
    topic_route = _runs(topics.topic_route)
    topic_clusters = _runs(topics.topic_clusters)
    topic_stats = _runs(topics.topic_stats)
    groups_of_topic = _runs(topics.groups_of_topic)
    create_topic = _runs(topics.create_topic)
    set_topic_permission = _runs(topics.set_topic_permission)
    set_topic_order = _runs(nameservers.set_topic_order)
    delete_topic = _runs(topics.delete_topic)

    # --- consumer groups ----------------------------------------------------------------------

    list_groups = _runs(groups.list_groups)
    create_group = _runs(groups.create_group)
    delete_group = _runs(groups.delete_group)
    group_progress = _runs(groups.group_progress)
    broker_progress = _runs(groups.broker_progress)
    group_times = _runs(groups.group_times)

    # --- offsets ------------------------------------------------------------------------------

    min_offset = _runs(offsets.min_offset)
    max_offset = _runs(offsets.max_offset)
    offset_at = _runs(offsets.offset_at)
    first_stored_at_ms = _runs(offsets.first_stored_at_ms)
    consumer_offset = _runs(offsets.consumer_offset)
    set_consumer_offsets = _runs(offsets.set_consumer_offsets)
    clone_offsets = _runs(offsets.clone_offsets)
    reset_offsets = _runs(offsets.reset_offsets)

    # --- messages -----------------------------------------------------------------------------

    message_by_id = _runs(messages.message_by_id)
    message_by_unique_key = _runs(messages.message_by_unique_key)
    messages_by_key = _runs(messages.messages_by_key)
    find_message = _runs(messages.find_message)
    message_at = _runs(messages.message_at)
    message_tracks = _runs(tracks.message_tracks)
    message_traces = _runs(tracks.message_traces)
    resume_check = _runs(messages.resume_check)

    # --- clients ------------------------------------------------------------------------------

    consumer_connections = _runs(clients.consumer_connections)
    producer_connections = _runs(clients.producer_connections)
    broker_producers = _runs(clients.broker_producers)
    running_info = _runs(clients.running_info)
    consumer_status = _runs(clients.consumer_status)
    consume_directly = _runs(clients.consume_directly)

    # --- brokers ------------------------------------------------------------------------------

    cluster_info = _runs(brokers.cluster_info)
    list_brokers = _runs(brokers.list_brokers)
    broker_config = _runs(brokers.broker_config)
    update_broker_config = _runs(brokers.update_broker_config)
    runtime_info = _runs(brokers.runtime_info)
    broker_statistic = _runs(brokers.broker_statistic)
    consume_queue = _runs(brokers.consume_queue)
    clean_expired_queues = _runs(brokers.clean_expired_queues)
    clean_unused_topics = _runs(brokers.clean_unused_topics)
    delete_expired_logs = _runs(brokers.delete_expired_logs)

    # --- nameservers --------------------------------------------------------------------------

    put_kv = _runs(nameservers.put_kv)
    get_kv = _runs(nameservers.get_kv)
    delete_kv = _runs(nameservers.delete_kv)
    list_kv = _runs(nameservers.list_kv)
    nameserver_config = _runs(nameservers.nameserver_config)
    update_nameserver_config = _runs(nameservers.update_nameserver_config)
    wipe_write_permission = _runs(nameservers.wipe_write_permission)
    add_write_permission = _runs(nameservers.add_write_permission)

    # --- accounts -----------------------------------------------------------------------------

    put_account = _runs(accounts.put_account)
    delete_account = _runs(accounts.delete_account)
    set_white_addresses = _runs(accounts.set_white_addresses)
    account_versions = _runs(accounts.account_versions)


@asynccontextmanager
async def open_admin(config: ClientConfig | str) -> AsyncIterator[AdminClient]:
    """Run an admin client for the length of a block; text stands for addresses of nameservers."""
    if isinstance(config, str):
        config = ClientConfig(nameservers=config, request_timeout_s=TIMEOUT_S)
    async with open_client(config) as client:
        yield AdminClient(client)
