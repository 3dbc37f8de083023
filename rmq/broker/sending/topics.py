"""The topics that messages are sent to: found, or created first while the request waits.

A request that wants a topic which is not there yet is deferred. It goes on when the topic is on
disk, and is answered in any case: with what went wrong if something did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rmq.broker.tables.topics import topic_sys_flag
from rmq.errors import RefusedError
from rmq.model.names import RETRY_PREFIX
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.sending.preparation import SendHeader
    from rmq.broker.sending.topic_creation import TopicCreation
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.bodies import TopicConfig
    from rmq.remoting.request import Request


@final
class SendTopics:
    """Finds and creates topics for requests that bring messages."""

    def __init__(self, topics: TopicTable, creation: TopicCreation) -> None:
        self._topics = topics
        self._creation = creation

    def ready(self, name: str) -> TopicConfig | None:
        """Return a topic that messages can be put into now; None if it has to be created first."""
        if self._creation.is_under_way(name):
            return None
        return self._topics.get(name)

    def create_on_send(
        self,
        request: Request[Any],
        header: SendHeader,
        go_on: Callable[[], None],
        refuse: Callable[[RefusedError], None],
    ) -> None:
        """Have the topic created that is sent to, after the one that `header` names as its model.

        Then `go_on` is called, whether that topic may be made or not.
        """
        name, producer = header.topic, request.channel.peer
        is_retry = name.startswith(RETRY_PREFIX)
        sys_flag = topic_sys_flag(
            unit=header.unit_mode and not is_retry, unit_sub=header.unit_mode and is_retry
        )

        def create() -> TopicConfig | None:
            created = self._topics.create_on_send(
                name, header.default_topic, header.default_topic_queue_nums, sys_flag, producer
            )
            if created is None and is_retry:
                created = self._topics.create_on_send_back(name, 1, sys_flag=sys_flag)
            return created

        request.defer()
        self._creation.submit(name, create, _resumption(request, go_on, refuse))

    def create_for_group(
        self,
        request: Request[Any],
        name: str,
        go_on: Callable[[], None],
        refuse: Callable[[RefusedError], None],
        *,
        queues: int = 1,
        has_unit_sub: bool = False,
    ) -> None:
        """Have a group's retry or dead-letter topic created, then go on."""
        sys_flag = topic_sys_flag(unit_sub=has_unit_sub)
        request.defer()
        self._creation.submit(
            name,
            lambda: self._topics.create_on_send_back(name, queues, sys_flag=sys_flag),
            _resumption(request, go_on, refuse),
        )


def _resumption(
    request: Request[Any], go_on: Callable[[], None], refuse: Callable[[RefusedError], None]
) -> Callable[[Exception | None], None]:
    """Return what to call when a topic was created, or could not be because of an error."""

    def resume(error: Exception | None) -> None:
        try:
            if error is not None:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error))
            go_on()
        except RefusedError as exc:
            refuse(exc)
        except Exception as exc:
            # The producer waits, and would get no response otherwise.
            if not request.answered:
                request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
            raise

    return resume
