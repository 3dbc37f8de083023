"""Clients and requests: who is connected, what is slow, what is refused."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section
from rmq.cli.generate.grafana.panels import (
    NEUTRAL,
    Column,
    Heatmap,
    Query,
    Stat,
    Table,
    TimeSeries,
    Unit,
    levels,
)
from rmq.cli.generate.grafana.queries import buckets, increase, of, quantile, rate, total
from rmq.cli.generate.grafana.shared import (
    ANNOTATIONS,
    BAD_ABOVE_0,
    BROKER_VARIABLES,
    CLIENTS,
    GROUP,
    ODD_ABOVE_0,
    TOPIC,
)

_CONNECTIONS: Final = of("rocketmq_remoting_connections")
_GROUP: Final = 'consumer_group=~"$group"'
_TOPIC: Final = 'topic=~"$topic"'
_FAILED: Final = 'status!="PUT_OK"'
_SENDS: Final = 'request_code=~"send_.+"'
_OWN_WORK: Final = 'is_long_polling="false"'
_ERRORS: Final = (
    'response_code!~"success|none|pull_not_found|pull_retry_immediately|pull_offset_moved'
    '|query_not_found"'
)
"""Answers that tell a client that something is wrong."""
_LATENCY: Final = levels("green", (0.2, "orange"), (1, "red"))

_NOW: Final = Section(
    "Now",
    (
        Row(
            4,
            (
                Stat(
                    "Connections",
                    "Of clients, slaves' requests and tools to all brokers. 50,000 are the limit of"
                    " one broker.",
                    Unit.COUNT,
                    (Query(total(_CONNECTIONS), "open"),),
                    levels=NEUTRAL,
                ),
                Stat(
                    "Producers",
                    "Connections of producers.",
                    Unit.COUNT,
                    (Query(total(of("rocketmq_producer_connections")), "producers"),),
                    levels=NEUTRAL,
                    absent="none",
                ),
                Stat(
                    "Consumers",
                    "Connections of consumers; a client in two groups counts twice.",
                    Unit.COUNT,
                    (Query(total(of("rocketmq_consumer_connections", _GROUP)), "consumers"),),
                    levels=NEUTRAL,
                    absent="none",
                ),
                Stat(
                    "Requests per second",
                    "Of all kinds, to all brokers.",
                    Unit.PER_SECOND,
                    (Query(rate("rocketmq_requests_total"), "requests"),),
                    levels=NEUTRAL,
                    decimals=0,
                ),
                Stat(
                    "Error answers, 5 min",
                    "Answers that told a client that something is wrong. 0 is right; few of"
                    " topic_not_exist come from clients that start.",
                    Unit.COUNT,
                    (Query(increase("rocketmq_requests_total", _ERRORS, over="5m")),),
                    levels=ODD_ABOVE_0,
                    absent="0",
                    decimals=0,
                ),
                Stat(
                    "Refused, 5 min",
                    "Requests that brokers refused, to protect themselves or because they may not"
                    " take them. 0 is right.",
                    Unit.COUNT,
                    (Query(increase("rocketmq_requests_rejected_total", over="5m")),),
                    levels=ODD_ABOVE_0,
                    decimals=0,
                ),
                Stat(
                    "Turned away, 1 h",
                    "Connections closed at once, because there were too many. 0 is right.",
                    Unit.COUNT,
                    (Query(increase("rocketmq_remoting_connections_refused_total", over="1h")),),
                    levels=BAD_ABOVE_0,
                    decimals=0,
                ),
                Stat(
                    "Held pulls",
                    "Pulls that wait for messages: about one for each queue that a consumer has"
                    " read to its end.",
                    Unit.COUNT,
                    (Query(total(of("rocketmq_pull_held_requests")), "held"),),
                    levels=NEUTRAL,
                ),
            ),
        ),
    ),
)

_WHO: Final = Section(
    "Who is connected",
    (
        Row(
            8,
            (
                Table(
                    "Producers",
                    "Connections by language and version of the client's library. Old versions are"
                    " worth an update.",
                    Unit.NONE,
                    (
                        Column(
                            total(of("rocketmq_producer_connections"), by="language, version"),
                            heading="Connections",
                            unit=Unit.COUNT,
                        ),
                    ),
                    labels=(("language", "Language"), ("version", "Version")),
                    width=6,
                    sort_by="Connections",
                    absent="none",
                ),
                Table(
                    "Consumers",
                    "Connections by group, language and version. Members of a group should have one"
                    " version and one mode.",
                    Unit.NONE,
                    (
                        Column(
                            total(
                                of("rocketmq_consumer_connections", _GROUP),
                                by="consumer_group, language, version, consume_mode",
                            ),
                            heading="Connections",
                            unit=Unit.COUNT,
                        ),
                    ),
                    labels=(
                        ("consumer_group", "Group"),
                        ("language", "Language"),
                        ("version", "Version"),
                        ("consume_mode", "Mode"),
                    ),
                    width=10,
                    sort_by="Connections",
                    absent="none",
                ),
                TimeSeries(
                    "Connections",
                    "By broker and port. It changes when clients come and go.",
                    Unit.COUNT,
                    (Query(_CONNECTIONS, "{{node_id}} {{instance}} {{listener}}"),),
                    width=8,
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Connections opened and closed",
                    "Per second; closed ones are drawn below zero. Below one in a second is right:"
                    " clients keep their connections for as long as they run.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_remoting_connections_opened_total", by="node_id"),
                            "{{node_id}} opened",
                        ),
                        Query(
                            rate("rocketmq_remoting_connections_closed_total", by="node_id"),
                            "{{node_id}} closed",
                        ),
                    ),
                    minimum=None,
                    downward=(1,),
                ),
                TimeSeries(
                    "Held pulls",
                    "Pulls that wait for messages, by broker.",
                    Unit.COUNT,
                    (Query(of("rocketmq_pull_held_requests"), "{{node_id}} {{instance}}"),),
                ),
                TimeSeries(
                    "Unanswered, of what there may be",
                    "Requests that are not answered yet, as a part of the capacity of their group"
                    " of codes. At 100 % more are refused as busy.",
                    Unit.RATIO,
                    (
                        Query(
                            f"{of('rocketmq_processor_watermark')}"
                            f" / {of('rocketmq_processor_capacity')}",
                            "{{node_id}} {{instance}} {{processor}}",
                        ),
                    ),
                    levels=levels("green", (0.5, "orange"), (0.9, "red")),
                ),
            ),
        ),
    ),
)

_REQUESTS: Final = Section(
    "Requests",
    (
        Row(
            9,
            (
                TimeSeries(
                    "Requests by code",
                    "Per second. Codes are the words of RocketMQ in lower case.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_requests_total", by="request_code"), "{{request_code}}"
                        ),
                    ),
                ),
                TimeSeries(
                    "Time of a request, p99, by code",
                    "From the arrival of a request to its answer; pulls that waited for messages"
                    " are left out. Below 50 ms is right; lists of all topics take longer.",
                    Unit.SECONDS,
                    (
                        Query(
                            quantile(
                                0.99,
                                "rocketmq_rpc_latency_seconds",
                                _OWN_WORK,
                                by="request_code",
                            ),
                            "{{request_code}}",
                        ),
                    ),
                    levels=_LATENCY,
                ),
            ),
        ),
        Row(
            8,
            (
                Heatmap(
                    "Times of sends",
                    "How many requests with messages took how long, in each interval.",
                    Unit.SECONDS,
                    (Query(buckets("rocketmq_rpc_latency_seconds", _SENDS, _OWN_WORK), "{{le}}"),),
                ),
                TimeSeries(
                    "Error answers",
                    "Per second, by code of request and answer. No line is right.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate(
                                "rocketmq_requests_total", _ERRORS, by="request_code, response_code"
                            )
                            + " > 0",
                            "{{request_code}}: {{response_code}}",
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "Refused",
                    "Per second, by reason. queue_full, queue_timeout and pagecache_busy: the"
                    " broker is overloaded, or its disk. acl: the account may not. The others:"
                    " the broker takes no messages now.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_requests_rejected_total", by="node_id, reason") + " > 0",
                            "{{node_id}} {{reason}}",
                        ),
                    ),
                    absent="none",
                ),
            ),
        ),
    ),
)

_SENT: Final = Section(
    "Sends and transactions",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Sends by result",
                    "Per second, as store, disk and slaves said in the end. Only PUT_OK is right.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_put_results_total", by="status") + " > 0", "{{status}}"
                        ),
                    ),
                ),
                TimeSeries(
                    "Sends not OK, as a part of all",
                    "0 is right. These messages may be stored nevertheless: producers that send"
                    " them again make duplicates.",
                    Unit.RATIO,
                    (
                        Query(
                            f"{rate('rocketmq_put_results_total', _FAILED, by='node_id')}"
                            f" / {rate('rocketmq_put_results_total', by='node_id')}",
                            "{{node_id}}",
                        ),
                    ),
                    levels=levels("green", (0.01, "red")),
                ),
                TimeSeries(
                    "Messages in, by topic",
                    "Stored, per second: the 20 topics that get most.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            f"topk(20, {rate('rocketmq_messages_in_total', _TOPIC, by='topic')})",
                            "{{topic}}",
                        ),
                    ),
                    absent="none",
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Transactions",
                    "Per second: committed and rolled back.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_commit_messages_total", _TOPIC, by="topic"),
                            "{{topic}} committed",
                        ),
                        Query(
                            rate("rocketmq_rollback_messages_total", _TOPIC, by="topic"),
                            "{{topic}} rolled back",
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "Transactions not decided",
                    "Half messages that wait for their producer. Few are right; a number that grows"
                    " means that producers are gone or do not answer checks.",
                    Unit.COUNT,
                    (Query(of("rocketmq_half_messages"), "{{node_id}}"),),
                    levels=levels("green", (1_000, "orange")),
                    absent="no master",
                ),
                TimeSeries(
                    "Time to a commit",
                    "From the half message to its commit: how long the transactions of producers"
                    " take.",
                    Unit.SECONDS,
                    tuple(
                        Query(
                            quantile(part, "rocketmq_finish_message_latency_seconds"),
                            legend,
                        )
                        for part, legend in ((0.5, "p50"), (0.99, "p99"))
                    ),
                    absent="none",
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    uid=CLIENTS,
    title="RocketMQ clients and requests",
    description="Who is connected, which requests are slow, which are refused, and why.",
    variables=(*BROKER_VARIABLES, TOPIC, GROUP),
    sections=(_NOW, _WHO, _REQUESTS, _SENT),
    annotations=ANNOTATIONS,
)
