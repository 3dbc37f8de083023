"""The options of the format `rocketmq` for reading, checked and typed. Pure.

Names and meanings are those of Spark's Kafka source where it has the same. Contradicting options
are an error that names both, and so is an option that would have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.client.core.messages import check_group
from rmq.client.core.nameservers import parse_nameservers
from rmq.errors import ConfigError, IllegalMessageError, RefusedError
from rmq.remoting.bodies import SUBSCRIBE_ALL
from rmq.remoting.expressions import build_subscription
from rmq.settings.schema import LONG_MAX, Rule, Schema, Setting, Values
from rmq.spark.options import CLUSTER_SETTINGS, COLUMN_SETTINGS, read_options
from rmq.spark.schema import chosen_columns
from rmq.spark.wire.choice import CHOICE_KEYS, chosen_queues
from rmq.spark.wire.places import Place, PlaceKind, check_order
from rmq.spark.wire.planning import PARTITIONS_MAX
from rmq.spark.wire.positions import EARLIEST, parse_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PULL_BATCH_MAX: Final = 1024
"""The most that stock clients may ask for at once. Brokers give out fewer unless they are told
otherwise (maxTransferCountOnMessageInMemory, 32)."""
_NOT_SET: Final = -1


def _checks_group(key: str) -> Setting:
    def check(text: str) -> None:
        try:
            check_group(text)
        except IllegalMessageError as exc:
            raise ConfigError(key, exc.reason) from exc

    return Setting(key=key, default=_DEFAULTS.get(key), help=_HELP[key], check=check)


_DEFAULTS: Final = {"consumerGroup": "rmq-spark"}
_HELP: Final = {
    "group": "the consumer group whose committed offsets `startingOffsets=group` means",
    "consumerGroup": "the name under which brokers see the pulls",
    "commitGroup": (
        "consumer group that is told how far the query has come, for dashboards of lag;"
        " nothing is ever read back from it"
    ),
}


def _time(key: str, what: str) -> Setting:
    return Setting(
        key=key,
        default=_NOT_SET,
        default_text="not set",
        minimum=_NOT_SET,
        maximum=LONG_MAX,
        help=f"{what} the first message that was stored at this time or later, in ms since 1970",
    )


_SETTINGS: Final = (
    Setting(
        key="assign",
        default=None,
        help='queues to read, as JSON: `{"topic": {"broker": [0, 1]}}`',
    ),
    Setting(key="subscribe", default=None, help="topics to read, joined by commas"),
    Setting(
        key="subscribePattern",
        default=None,
        help="regular expression; topics are read whose whole name matches it",
    ),
    Setting(
        key="includeSystemTopics",
        default=False,
        help=(
            "whether `subscribePattern` also finds topics of brokers and consumer groups"
            " (`%RETRY%`, `%DLQ%`, SCHEDULE_TOPIC_XXXX and others); topics that are named are"
            " always read"
        ),
    ),
    Setting(
        key="tags",
        default=SUBSCRIBE_ALL,
        help="tags of the messages to read, as `a || b`; `*` for all messages",
    ),
    Setting(
        key="startingOffsets",
        default=None,
        default_text="earliest for batches, latest for streams",
        help=(
            "where to start: `earliest`, `latest`, `group`, or offsets of all queues as JSON,"
            ' `{"topic": {"broker": {"0": 23}}}`, -2 for the first message and -1 for the end'
        ),
    ),
    Setting(
        key="endingOffsets",
        default=None,
        default_text="latest",
        help="where a batch ends, likewise; the message at this offset is not read",
    ),
    _time("startingTimestamp", "start with"),
    _time("endingTimestamp", "end a batch before"),
    Setting(
        key="startingOffsetsByTimestampStrategy",
        default="error",
        choices=("error", "latest"),
        help="what to do if nothing was stored at startingTimestamp or later",
    ),
    _checks_group("group"),
    _checks_group("consumerGroup"),
    _checks_group("commitGroup"),
    Setting(
        key="maxOffsetsPerTrigger",
        default=0,
        maximum=LONG_MAX,
        help="messages that one batch of a stream reads at most; 0: all there are",
    ),
    Setting(
        key="minPartitions",
        default=0,
        maximum=PARTITIONS_MAX,
        help="queues are split so that there are at least this many tasks; 0: one per queue",
    ),
    Setting(
        key="maxRecordsPerPartition",
        default=0,
        maximum=LONG_MAX,
        help="queues are split so that no task reads more messages than these; 0: no limit",
    ),
    Setting(
        key="failOnDataLoss",
        default=True,
        help="whether messages that are not there any more are an error, or logged",
    ),
    Setting(
        key="pullBatchSize",
        default=PULL_BATCH_MAX,
        minimum=1,
        maximum=PULL_BATCH_MAX,
        help=(
            "messages to ask for at once; brokers give out fewer unless their"
            " maxTransferCountOnMessageInMemory (32) is raised"
        ),
    ),
    Setting(
        key="pullRetries",
        default=60,
        maximum=10_000,
        help="how often a broker that does not answer is tried again, about once a second",
    ),
)

_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "commitGroup")


# --- where it starts and ends ----------------------------------------------------------------


def _start(values: Values, default: PlaceKind) -> Place:
    return _place(
        values,
        "startingOffsets",
        "startingTimestamp",
        default,
        is_end_if_none=values.text("startingOffsetsByTimestampStrategy") == "latest",
    )


def _end(values: Values) -> Place:
    return _place(values, "endingOffsets", "endingTimestamp", PlaceKind.LATEST, is_end_if_none=True)


def _place(
    values: Values, offsets_key: str, time_key: str, default: PlaceKind, *, is_end_if_none: bool
) -> Place:
    text = values.text(offsets_key)
    time_ms = values.integer(time_key)
    if text and time_ms != _NOT_SET:
        raise ConfigError(offsets_key, f"and {time_key} both say where: give one of them")
    if time_ms != _NOT_SET:
        return Place(PlaceKind.TIME, time_key, time_ms=time_ms, is_end_if_none=is_end_if_none)
    if not text:
        return Place(default, offsets_key)
    words = {kind.value: kind for kind in (PlaceKind.EARLIEST, PlaceKind.LATEST, PlaceKind.GROUP)}
    kind = words.get(text.lower())
    if kind is not None:
        return Place(kind, offsets_key)
    if not text.startswith("{"):
        raise ConfigError(
            offsets_key, f"{text!r} is neither {', '.join(words)} nor JSON that begins with {{"
        )
    return Place(PlaceKind.OFFSETS, offsets_key, offsets=parse_places(offsets_key, text))


def _check_places(values: Values) -> str | None:
    start, end = _start(values, PlaceKind.EARLIEST), _end(values)
    if end.kind is PlaceKind.EARLIEST or EARLIEST in end.offsets.values():
        raise ConfigError("endingOffsets", "earliest (-2) is no end: nothing would be read")
    wants_group = PlaceKind.GROUP in (start.kind, end.kind)
    if wants_group and not values.text("group"):
        key = start.key if start.kind is PlaceKind.GROUP else end.key
        raise ConfigError(key, "is group: the option group must say which one")
    if values.text("group") and not wants_group:
        raise ConfigError("group", "has no effect unless startingOffsets or endingOffsets is group")
    if wrong := check_order(start, end):
        raise ConfigError(start.key, wrong)
    return None


def _check_tags(values: Values) -> str | None:
    try:
        build_subscription("", values.text("tags"))
    except RefusedError:
        return f"{values.text('tags')!r} names no tag; write them as a || b, or * for all"
    return None


def _check_choice(values: Values) -> str | None:
    chosen_queues(values)
    return None


def _check_columns(values: Values) -> str | None:
    chosen_columns(values.text("columns"), include_properties=values.flag("includeProperties"))
    return None


def _check_nameservers(values: Values) -> str | None:
    parse_nameservers(values.text("nameservers"))
    return None


SCHEMA: Final = Schema(
    (*CLUSTER_SETTINGS, *_SETTINGS, *COLUMN_SETTINGS),
    rules=(
        Rule(keys=("nameservers",), check=_check_nameservers),
        Rule(keys=CHOICE_KEYS, check=_check_choice),
        Rule(
            keys=(
                "startingOffsets",
                "endingOffsets",
                "startingTimestamp",
                "endingTimestamp",
                "startingOffsetsByTimestampStrategy",
                "group",
            ),
            check=_check_places,
        ),
        Rule(keys=("tags",), check=_check_tags),
        Rule(keys=("columns", "includeProperties"), check=_check_columns),
    ),
)
"""All options for reading."""


# --- all of it -------------------------------------------------------------------------------


@final
class SourceOptions:
    """What a query reads, and how. Holds no secrets: those are read where they are used."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises `ConfigError` that names everything wrong."""
        self.values = values = read_options(SCHEMA, options)
        self.choice = chosen_queues(values)
        self.columns = chosen_columns(
            values.text("columns"), include_properties=values.flag("includeProperties")
        )

    def __repr__(self) -> str:
        return f"<SourceOptions {self.choice} of {self.values.text('nameservers')}>"

    @property
    def tags(self) -> str:
        return self.values.text("tags") or SUBSCRIBE_ALL

    @property
    def group(self) -> str:
        return self.values.text("group")

    @property
    def commit_group(self) -> str:
        return self.values.text("commitGroup")

    @property
    def includes_system_topics(self) -> bool:
        return self.values.flag("includeSystemTopics")

    @property
    def fails_on_data_loss(self) -> bool:
        return self.values.flag("failOnDataLoss")

    @property
    def offsets_per_trigger(self) -> int:
        return self.values.integer("maxOffsetsPerTrigger")

    def for_batch(self) -> tuple[Place, Place]:
        """Return where a batch starts and ends; raise `ConfigError` if that is for streams."""
        self._refuse(_STREAM_ONLY, "is for streams")
        start = _start(self.values, PlaceKind.EARLIEST)
        if start.kind is PlaceKind.LATEST:
            raise ConfigError("startingOffsets", "a batch that starts at the end reads nothing")
        return start, _end(self.values)

    def for_stream(self) -> Place:
        """Return where a stream starts; raise `ConfigError` if it is told to end."""
        self._refuse(_BATCH_ONLY, "is for batches: a stream has no end")
        return _start(self.values, PlaceKind.LATEST)

    def _refuse(self, keys: Iterable[str], why: str) -> None:
        for key in keys:
            if self.values[key] != SCHEMA[key].default:
                raise ConfigError(key, why)
