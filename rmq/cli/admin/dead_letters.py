"""Dead letters as they are: `rmq dlq list`, `show` and `export`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from rmq.cli.admin.messages import body_text, message_json
from rmq.cli.admin.session import Cluster, NothingFoundError, open_cluster, print_found
from rmq.cli.admin.topics import topic_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.message_lines import encode_line
from rmq.cli.common.shown import time_text
from rmq.cli.common.tables import Column, print_table
from rmq.client.blocking.consumer import BlockingConsumer
from rmq.client.core.admin.messages import TOOLS_GROUP
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.flows import ask
from rmq.errors import ConfigError, NoRouteError
from rmq.model.names import DLQ_PREFIX, dlq_topic
from rmq.model.words import count_text
from rmq.remoting.bodies import TopicConfigSerializeWrapper, TopicStatsTable
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetTopicStatsInfoRequest

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from rmq.client.core.flows import Flow
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import Address

BODY_CHARS: int = 40


# --- list -------------------------------------------------------------------------------------


def list_groups(args: Namespace) -> int:
    """Print groups that have dead letters."""
    with open_cluster(args) as cluster:
        groups = cluster.groups(cluster=args.cluster)
        tried = cluster.read_each("dead letters", groups, _letters_at)
    found: dict[str, dict[str, Any]] = {}
    for _, tables in tried.answers:
        for topic, table in tables.items():
            name = topic.removeprefix(DLQ_PREFIX)
            line = found.setdefault(name, {"group": name, "letters": 0, "last_stored_at_ms": 0})
            for told in table.offset_table.values():
                line["letters"] += told.max_offset - told.min_offset
                line["last_stored_at_ms"] = max(
                    line["last_stored_at_ms"], told.last_update_timestamp
                )
    lines = [found[name] for name in sorted(found) if found[name]["letters"]]

    def show() -> None:
        print_table(
            ("GROUP", Column("LETTERS", True), "LAST STORED"),
            [
                (each["group"], each["letters"], time_text(each["last_stored_at_ms"]))
                for each in lines
            ],
        )

    return print_found(args, {"groups": lines}, show, tried.failures)


def _letters_at(broker: Address) -> Flow[dict[str, TopicStatsTable]]:
    """Return what the topics of dead letters of a broker hold."""
    answer = yield from ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=TIMEOUT_S)
    names = answer.body(TopicConfigSerializeWrapper).topic_config_table
    tables: dict[str, TopicStatsTable] = {}
    for name in sorted(names):
        if name.startswith(DLQ_PREFIX):
            answer = yield from ask(
                broker.address,
                RequestCode.GET_TOPIC_STATS_INFO,
                GetTopicStatsInfoRequest(topic=name),
                timeout_s=TIMEOUT_S,
            )
            tables[name] = answer.body(TopicStatsTable)
    return tables


# --- reading ----------------------------------------------------------------------------------


def letters_of(
    cluster: Cluster, group: str, *, latest: int | None = None
) -> Iterator[ReceivedMessage]:
    """Yield the dead letters of a group, of each queue the latest ones if a number is given.

    Raises `NothingFoundError` if there are none, and `ClientError` if a broker does not answer.
    """
    try:
        found, failures = topic_found(cluster, dlq_topic(group))
    except NoRouteError:
        raise NothingFoundError(f"group {group} has no dead letters") from None
    if failures:
        raise failures[0].error
    with BlockingConsumer(cluster.admin.client, TOOLS_GROUP) as consumer:
        ends = {
            (each["broker"], each["queue_id"]): (each["min_offset"], each["max_offset"])
            for each in found["queues"]
        }
        for queue in consumer.queues(dlq_topic(group)):
            first, end = ends.get((queue.broker_name, queue.queue_id), (0, 0))
            if latest is not None:
                first = max(first, end - latest)
            yield from consumer.read_range(queue, first, end)


def origin_of(letter: ReceivedMessage) -> str | None:
    """Return the topic that a dead letter was sent to; None if it does not say."""
    return letter.properties.get("RETRY_TOPIC") or letter.properties.get("REAL_TOPIC")


def show(args: Namespace) -> int:
    """Print the latest dead letters of a group."""
    with open_cluster(args) as cluster:
        letters = list(letters_of(cluster, args.group, latest=args.count))
    letters.sort(key=lambda each: each.stored_at_ms, reverse=True)
    letters = letters[: args.count]
    return print_found(
        args,
        {
            "group": args.group,
            "letters": [
                {**message_json(each), "origin_topic": origin_of(each)} for each in letters
            ],
        },
        lambda: print_letters(letters),
    )


def print_letters(letters: list[ReceivedMessage]) -> None:
    """Print dead letters, a line each."""
    print_table(
        ("STORED", "ID", "SENT TO", "TAG", Column("TRIED", True), "BODY"),
        [
            (
                time_text(each.stored_at_ms),
                each.message_id,
                origin_of(each),
                each.tag,
                each.reconsume_times,
                body_text(each, BODY_CHARS).replace("\n", " "),
            )
            for each in letters
        ],
    )


# --- export -----------------------------------------------------------------------------------


def export(args: Namespace) -> int:
    """Write dead letters to a file or to standard output."""
    with open_cluster(args) as cluster:
        letters = letters_of(cluster, args.group)
        if args.file is None:
            sys.stdout.flush()
            _write(letters, sys.stdout.buffer)
            return ExitCode.OK
        try:
            with args.file.open("xb") as file:
                count = _write(letters, file)
        except FileExistsError:
            raise ConfigError("FILE", f"{args.file} exists: name another one") from None
        except OSError as exc:
            raise ConfigError("FILE", f"{args.file}: {exc.strerror}") from exc
    found = {"group": args.group, "file": str(args.file), "letters": count}
    return print_found(
        args, found, lambda: print(f"{count_text(count, 'dead letter')} written to {args.file}")
    )


def _write(letters: Iterator[ReceivedMessage], file: BinaryIO) -> int:
    count = 0
    for letter in letters:
        file.write(encode_line(letter) + b"\n")
        count += 1
    return count
