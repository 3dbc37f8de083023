"""Messages, queues and results of the stock Java client, as its driver writes them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interop.support.cases import MismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, order=True)
class Queue:
    """A queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Queue:
        return cls(line["topic"], line["broker"], line["queueId"])

    def as_json(self) -> dict[str, object]:
        return {"topic": self.topic, "broker": self.broker, "queueId": self.queue_id}


@dataclass(frozen=True)
class Outgoing:
    """A message to send."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    delay_level: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        line: dict[str, object] = {
            "topic": self.topic,
            "body": b64encode(self.body).decode(),
            "tags": self.tags,
            "keys": self.keys,
            "properties": self.properties,
        }
        if self.delay_level is not None:
            line["delayLevel"] = self.delay_level
        return line


@dataclass(frozen=True)
class Sent:
    """A SendResult."""

    status: str
    message_id: str
    """The unique key; those of a batch with commas in between."""
    offset_message_id: str
    queue: Queue
    queue_offset: int

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Sent:
        if "status" not in line:
            raise MismatchError(f"the send failed: {line}")
        return cls(
            status=line["status"],
            message_id=line["msgId"],
            offset_message_id=line["offsetMsgId"],
            queue=Queue.parse(line["queue"]),
            queue_offset=line["queueOffset"],
        )


@dataclass(frozen=True)
class Received:
    """A MessageExt."""

    topic: str
    broker: str | None
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    body: bytes
    properties: Mapping[str, str]
    tags: str | None
    keys: str | None
    message_id: str
    offset_message_id: str
    received_ms: int | None
    """When a push consumer's listener got it."""
    attempt: int | None
    """How often it has got it."""

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Received:
        return cls(
            topic=line["topic"],
            broker=line["broker"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
            physical_offset=line["physicalOffset"],
            sys_flag=line["sysFlag"],
            born_ms=line["bornMs"],
            born_host=line["bornHost"],
            store_ms=line["storeMs"],
            store_host=line["storeHost"],
            reconsume_times=line["reconsumeTimes"],
            body=b64decode(line["body"]),
            properties=line["properties"],
            tags=line["tags"],
            keys=line["keys"],
            message_id=line["msgId"],
            offset_message_id=line["offsetMsgId"],
            received_ms=line.get("receivedMs"),
            attempt=line.get("attempt"),
        )


@dataclass(frozen=True)
class Pulled:
    """A PullResult."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Received]

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Pulled:
        return cls(
            status=line["status"],
            next_offset=line["nextOffset"],
            min_offset=line["minOffset"],
            max_offset=line["maxOffset"],
            messages=[Received.parse(message) for message in line["messages"]],
        )
