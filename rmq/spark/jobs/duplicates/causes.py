"""Why a message may be in a topic more than once."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """What most likely happened, and how `--allow` names it."""

    PRODUCER = "producer-retry"
    """The same bytes from one host within a minute: it got no answer, and sent again."""
    FAILOVER = "producer-failover"
    """Likewise, and at another broker."""
    SINK = "sink-retry"
    """A task of Spark was run again; both copies have one SPARK_KEY."""
    REDRIVE = "redrive"
    """A dead letter that was sent again by `rmq pipeline dlq`."""
    REPLAY = "replay"
    """Sent again by `rmq pipeline replay`."""
    CONSUMER = "consumer-retry"
    """A consumer sent it back."""
    COMMIT = "committed-twice"
    """One transaction that was committed more than once."""
    REUSED_ID = "reused-id"
    """Other bytes under the same id: a producer that makes ids which are not unique."""
    UNKNOWN = "unknown"

    @property
    def text(self) -> str:
        """The cause as text."""
        return _TEXTS[self]


_TEXTS = {
    Cause.PRODUCER: "sent again by their producer, probably for want of an answer",
    Cause.FAILOVER: "sent again by their producer to another broker",
    Cause.SINK: "sent by a task of Spark that was run again",
    Cause.REDRIVE: "dead letters that were redriven",
    Cause.REPLAY: "replayed",
    Cause.CONSUMER: "sent back by a consumer",
    Cause.COMMIT: "of transactions that were committed more than once",
    Cause.REUSED_ID: "with another content under the same id",
    Cause.UNKNOWN: "for a reason that cannot be told",
}
