"""What the members of a consumer group ask brokers for: each other, locks, filters. Pure.

Locks are what orderly consumption rests on: the master of a queue gives it to one client of a group
at a time, for 60 s from the last time that it was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.client.core.flows import Ask, Flow, Tell, ask, expect
from rmq.errors import ClientError, NoRouteError
from rmq.model.names import MASTER_ID
from rmq.remoting.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetConsumerListByGroupRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData

LOCK_TIMEOUT_S: Final = 1.0
"""A lock that takes longer is worth little."""


def group_members(route: TopicRoute, group: str) -> Flow[tuple[str, ...] | None]:
    """Return the client ids of a group's members, as a broker of a topic knows them.

    None: the broker knows no such group. All members ask brokers in the same order, so that they
    agree on who shares queues. Raises what the last broker failed with.
    """
    header = GetConsumerListByGroupRequest(consumer_group=group)
    names = dict.fromkeys(broker.broker_name for broker in route.brokers)
    error: ClientError | None = None
    for name in names:
        address = route.address_of(name)
        assert address is not None, f"{name} has no address in its own route"
        try:
            answer = yield Ask(address.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            assert answer is not None
            if answer.code == ResponseCode.SUCCESS:
                return answer.body(GetConsumerListByGroupResponseBody).consumer_id_list or None
        except ClientError as exc:
            error = exc
            continue
        if answer.code == ResponseCode.SYSTEM_ERROR:
            # What brokers say of a group without members.
            return None
        error = answer.failure()
    raise error or NoRouteError("", route.topic, "no broker is known that has it")


def lock_queues(
    routes: RouteTable, group: str, client_id: str, queues: Iterable[MessageQueue]
) -> Flow[dict[MessageQueue, bool]]:
    """Lock queues, or renew their locks; return those that were decided and how.

    A queue is missing in the result if its master did not answer: its lock is what it was.
    """
    decided: dict[MessageQueue, bool] = {}
    for address, wanted in _by_master(routes, queues).items():
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=tuple(wanted))
        try:
            answer = yield from ask(
                address, RequestCode.LOCK_BATCH_MQ, body=body.encode(), timeout_s=LOCK_TIMEOUT_S
            )
            locked = set(answer.body(LockBatchResponseBody).lock_ok_mq_set)
        except ClientError:
            continue
        decided.update((queue, queue in locked) for queue in wanted)
    return decided


def unlock_queues(
    routes: RouteTable,
    group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    *,
    waits: bool,
) -> Flow[None]:
    """Give queues back; `waits` for the brokers' answers. What fails is left to expire."""
    for address, given in _by_master(routes, queues).items():
        body = UnlockBatchRequestBody(
            consumer_group=group, client_id=client_id, mq_set=tuple(given)
        ).encode()
        try:
            if waits:
                yield Ask(address, RequestCode.UNLOCK_BATCH_MQ, None, body, LOCK_TIMEOUT_S)
            else:
                yield Tell(address, RequestCode.UNLOCK_BATCH_MQ, None, body)
        except ClientError:
            continue


def check_filter(
    route: TopicRoute, group: str, client_id: str, subscription: SubscriptionData
) -> Flow[None]:
    """Ask a broker of the topic whether it can filter so; raise `ResponseError` if it cannot."""
    brokers = route.brokers
    if not brokers:
        return
    body = CheckClientRequestBody(
        client_id=client_id, group=group, subscription_data=subscription
    ).encode()
    answer = yield Ask(brokers[0].address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
    expect(answer)


def _by_master(routes: RouteTable, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return queues by the address of their masters; those without one are left out."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        master = routes.address_of(queue.broker_name)
        if master is not None and master.broker_id == MASTER_ID:
            found.setdefault(master.address, []).append(queue)
    return found
