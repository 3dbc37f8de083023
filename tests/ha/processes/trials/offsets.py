"""Consumer offsets of a group, as trials set and ask them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from tests.ha.processes.load import TOPIC
from tests.ha.processes.trials.ground import POLL_S, WAIT_S

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground


async def commit(it: Ground, name: str, group: str, offset: int) -> None:
    """Say how far a group is with queue 0."""
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    answer = await it.client.request(
        it.address(name), RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=10
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def committed(it: Ground, name: str, group: str) -> int | None:
    """Ask how far a group is; None if the broker does not know."""
    header = QueryConsumerOffsetRequest(consumer_group=group, topic=TOPIC, queue_id=0)
    answer = await it.client.request(
        it.address(name), RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=10
    )
    if answer.code != ResponseCode.SUCCESS:
        return None
    return answer.header(QueryConsumerOffsetResponse).offset


async def until_committed(
    it: Ground, name: str, group: str, offset: int, wait_s: float = WAIT_S
) -> int | None:
    """Wait until a broker knows that a group is so far; return how far it says at the end."""
    with trio.move_on_after(wait_s):
        while await committed(it, name, group) != offset:  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)
    return await committed(it, name, group)
