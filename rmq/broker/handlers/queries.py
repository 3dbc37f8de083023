"""Messages by key and by physical offset: requests 12 and 33.

The records of an answer are views into the log and are not copied. Codes and remarks are those of
RocketMQ 4.9.8 QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.errors import RefusedError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import QUERY
from rmq.remoting.headers import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest
from rmq.remoting.protocol import Requests
from rmq.steps import in_steps

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request
    from rmq.store.store import MessageStore


@final
class QueryHandlers:
    """Finds single messages."""

    def __init__(self, live: LiveConfig, store: MessageStore) -> None:
        self._live = live
        self._store = store

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.QUERY_MESSAGE, self.by_key, group=QUERY)
        table.add(Requests.VIEW_MESSAGE_BY_ID, self.by_offset, group=QUERY)

    async def by_key(self, request: Request[QueryMessageRequest]) -> None:
        """12 QUERY_MESSAGE: the messages of a topic with a key, stored in a range of time."""
        header = request.header
        count_max = header.max_num
        if header.unique_key_query:
            count_max = self._live.current.default_query_max
        # In steps: a key, or all that share its hash, may have millions of entries.
        records = await in_steps(
            self._store.reads.searching(
                header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp
            )
        )
        if not records:
            request.reply(
                QueryMessageResponse(index_last_update_timestamp=0, index_last_update_phyoffset=0),
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
            )
            return
        indexed_ms, indexed_offset = self._store.last_indexed()
        request.reply(
            QueryMessageResponse(
                index_last_update_timestamp=indexed_ms,
                index_last_update_phyoffset=indexed_offset,
            ),
            body=tuple(records),
        )

    def by_offset(self, request: Request[ViewMessageRequest]) -> None:
        """33 VIEW_MESSAGE_BY_ID: the message whose record begins at a physical offset."""
        offset = PhysicalOffset(request.header.offset)
        reads = self._store.reads
        # Only a sound record counts: an offset may come from another broker, or from anywhere.
        record = reads.record_at(offset) if offset >= 0 else None
        view = None if record is None else self._store.log.view(offset, record.size)
        if view is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        request.reply(body=view)
