"""Which topics and queues a query reads: `assign`, `subscribe` or `subscribePattern`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from rmq.client.core.messages import check_topic
from rmq.errors import ConfigError, IllegalMessageError
from rmq.spark.wire.positions import names_of, parse_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.model.queues import MessageQueue
    from rmq.settings.schema import Values

CHOICE_KEYS: Final = ("assign", "subscribe", "subscribePattern")
"""The options, of which exactly one must be given."""


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """Which queues of a cluster are read: exactly one of these is set."""

    queues: tuple[MessageQueue, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def key(self) -> str:
        """The option that says so."""
        return "assign" if self.queues else "subscribe" if self.topics else "subscribePattern"

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Topics that must exist."""
        return tuple(sorted({queue.topic for queue in self.queues})) or self.topics

    def has(self, queue: MessageQueue) -> bool:
        """Tell whether a queue is one that this query may read."""
        if self.queues:
            return queue in self.queues
        if self.topics:
            return queue.topic in self.topics
        return self.matches(queue.topic)

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None

    def check(self, queues: Iterable[MessageQueue]) -> None:
        """Raise `ConfigError` if the offsets of a checkpoint are those of another query."""
        others = [queue for queue in queues if not self.has(queue)]
        if others:
            raise ConfigError(
                self.key,
                f"the checkpoint holds offsets of {names_of(others)}, which this query does not"
                " read: it belongs to another query; give this one a checkpointLocation of its own",
            )


def chosen_queues(values: Values) -> Choice:
    """Return which queues the options name; raise `ConfigError`."""
    given = [key for key in CHOICE_KEYS if values.text(key)]
    if len(given) > 1:
        raise ConfigError(given[0], f"and {given[1]} both say what to read: give one of them")
    if not given:
        raise ConfigError(
            "subscribe", f"nothing says what to read: give one of {', '.join(CHOICE_KEYS)}"
        )
    (key,) = given
    text = values.text(key)
    if key == "assign":
        queues = parse_assignment(key, text)
        _check_topics(key, {queue.topic for queue in queues})
        return Choice(queues=queues)
    if key == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        _check_topics(key, topics)
        return Choice(topics=tuple(sorted(topics)))
    try:
        re.compile(text)
    except re.error as exc:
        raise ConfigError(key, f"{text!r} is no regular expression: {exc}") from exc
    return Choice(pattern=text)


def _check_topics(key: str, topics: Iterable[str]) -> None:
    for topic in topics:
        try:
            check_topic(topic)
        except IllegalMessageError as exc:
            raise ConfigError(key, exc.reason) from exc
