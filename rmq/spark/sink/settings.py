"""The options of a write, beside those that say where the cluster is (`rmq.spark.options`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rmq.client.core.messages import BODY_BYTES_MAX, SendStatus, check_group, check_topic
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.outbound import UNSENDABLE_TOPICS
from rmq.errors import ConfigError, IllegalMessageError
from rmq.settings.schema import Schema, Setting
from rmq.spark.options import CLUSTER_SETTINGS, CREDENTIALS_KEYS, client_config, read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.core.config import ClientConfig
    from rmq.settings.schema import Values

OK: Final = "ok"
STORED: Final = "stored"
_RUN_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


def _check_topic(text: str) -> None:
    try:
        check_sendable(text)
    except IllegalMessageError as exc:
        raise ConfigError("topic", exc.reason) from None


def _check_group(text: str) -> None:
    try:
        check_group(text)
    except IllegalMessageError as exc:
        raise ConfigError("producerGroup", exc.reason) from None


def _check_run_id(text: str) -> None:
    if not _RUN_ID.fullmatch(text):
        raise ConfigError("runId", f"{text!r} is not 1 to 128 ASCII characters without blanks")


def check_sendable(topic: str) -> None:
    """Raise `IllegalMessageError` for a topic that clients cannot send to."""
    check_topic(topic)
    if topic in UNSENDABLE_TOPICS:
        raise IllegalMessageError(f"topic {topic} is written to by brokers only")


_SINK_SETTINGS: Final = (
    Setting(
        key="topic",
        default=None,
        check=_check_topic,
        help="the topic of all rows; where it is not set, the column `topic` names it row by row",
    ),
    Setting(
        key="ignoreExtraColumns",
        default=False,
        help="whether columns that are not known are left out; otherwise they are an error",
    ),
    Setting(
        key="sparkKeyInKeys",
        default=False,
        help="whether the key of the row (SPARK_KEY) is also one of the message's keys, by which"
        " operators find it",
    ),
    Setting(
        key="producerGroup",
        default="rmq-spark-sink",
        check=_check_group,
        help="the producer group that brokers see",
    ),
    Setting(
        key="batchBytes",
        default=256 * 1024,
        minimum=1024,
        maximum=BODY_BYTES_MAX,
        help="how large a batch of messages may be; brokers refuse more than their maxMessageSize",
    ),
    Setting(
        key="batchMessages",
        default=1000,
        minimum=1,
        maximum=100_000,
        help="how many messages a batch may have",
    ),
    Setting(
        key="messageBytesMax",
        default=BODY_BYTES_MAX,
        minimum=1,
        help="how large the body of a row may be; brokers have a limit of their own,"
        " maxMessageSize",
    ),
    Setting(
        key="inFlightBatches",
        default=8,
        minimum=1,
        maximum=1024,
        help="how many batches of a task may be under way",
    ),
    Setting(
        key="inFlightBytes",
        default=16 * 1024**2,
        minimum=1024,
        help="how many bytes of them; one batch may always go",
    ),
    Setting(
        key="acceptStatus",
        default=OK,
        choices=(OK, STORED),
        help="which answers count as sent: `ok` only SEND_OK; `stored` also those of brokers that"
        " have stored a message and could not flush or replicate it in time",
    ),
    Setting(
        key="sendTimeoutMs",
        default=10_000,
        minimum=1,
        help="how long a batch may take, all attempts included, in ms, before it is offered again",
    ),
    Setting(
        key="sendRetries",
        default=2,
        maximum=100,
        help="attempts after the first, at once and on another broker where there is one; a batch"
        " of a sharding key stays at its queue",
    ),
    Setting(
        key="busyTimeoutMs",
        default=60_000,
        help="how long a batch is offered again to a broker that says that it is busy, in ms",
    ),
    Setting(
        key="brokerTimeoutMs",
        default=60_000,
        help="how long a batch is offered again while no broker is there to take it, because one"
        " restarts or fails over, in ms",
    ),
    Setting(
        key="maxMessagesPerSecond",
        default=0,
        help="the most messages that the whole write may send in a second; 0: as many as it can",
    ),
    Setting(
        key="parallelTasks",
        default=0,
        maximum=1_000_000,
        help="how many tasks share maxMessagesPerSecond, which each gets an equal part of;"
        " 0: as many as can run at the same time, as far as the settings of Spark tell",
    ),
)

_RUN_ID_SETTING: Final = Setting(
    key="runId",
    default=None,
    check=_check_run_id,
    help="the first part of SPARK_KEY in a batch write: the same rows written again under the same"
    " name get the same message ids (default: a new one for every write)",
)
_CHECKPOINT_SETTING: Final = Setting(
    key="checkpointLocation", default=None, help="where Spark keeps the progress of a query"
)

BATCH_OPTIONS: Final = Schema((*CLUSTER_SETTINGS, *_SINK_SETTINGS, _RUN_ID_SETTING))
STREAM_OPTIONS: Final = Schema((*CLUSTER_SETTINGS, *_SINK_SETTINGS, _CHECKPOINT_SETTING))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The options of a task. Values only: they are pickled on their way to it."""

    values: Values

    @property
    def topic(self) -> str | None:
        return self.values.text("topic") or None

    @property
    def accepted(self) -> frozenset[SendStatus]:
        """The answers that count as sent."""
        return frozenset((SendStatus.OK,) if self.values.text("acceptStatus") == OK else SendStatus)

    def client(self) -> ClientConfig:
        """Return how to reach the cluster; files and the environment are those of this machine."""
        # Batches are in flight while the next one is made; a busy-wait for responses would take a
        # core from Spark.
        return replace(client_config(self.values), busy_wait_s=0.0)

    def producer(self) -> ProducerConfig:
        """Return how to send."""
        values = self.values
        return ProducerConfig(
            group=values.text("producerGroup"),
            send_timeout_s=values.integer("sendTimeoutMs") / 1000,
            retries=values.integer("sendRetries"),
            message_bytes_max=values.integer("messageBytesMax"),
        )


def read_settings(schema: Schema, options: Mapping[str, str]) -> SinkSettings:
    """Return the options of a write, checked; raise `ConfigError`.

    Secrets are not read: the machine that plans a write need not have them.
    """
    values = read_options(schema, options)
    client_config(values.with_changes(dict.fromkeys(CREDENTIALS_KEYS)), {})
    return SinkSettings(values=values)
