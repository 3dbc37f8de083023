"""What several dashboards have: variables, annotations, levels and words. Pure."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Annotation, Variable
from rmq.cli.generate.grafana.panels import Word, levels
from rmq.cli.generate.grafana.queries import BROKERS, INTERVAL, of, total

OVERVIEW: Final = "rocketmq-overview"
REPLICATION: Final = "rocketmq-replication"
STORE: Final = "rocketmq-store"
CONSUMERS: Final = "rocketmq-consumers"
CLIENTS: Final = "rocketmq-clients"
PIPELINES: Final = "rocketmq-pipelines"

# --- variables ----------------------------------------------------------------------------------
# Those of a broker are found by what it shows also while its store is being opened. "All" of job
# and instance is a list, because `up` and what a process says of itself have no label of a broker.

_JOB: Final = Variable(
    name="job",
    label="job",
    of='{__name__=~"rocketmq_(broker|namesrv)_ready"}',
    is_listed=True,
)
BROKER_VARIABLES: Final = (
    _JOB,
    Variable(name="cluster", label="cluster", of='rocketmq_broker_ready{job=~"$job"}'),
    Variable(
        name="broker",
        label="node_id",
        of='rocketmq_broker_ready{job=~"$job", cluster=~"$cluster"}',
    ),
    Variable(
        name="instance",
        label="instance",
        of='rocketmq_broker_ready{job=~"$job", cluster=~"$cluster", node_id=~"$broker"}',
        is_listed=True,
    ),
)
NAMESERVER: Final = Variable(
    name="nameserver",
    label="instance",
    of='rocketmq_namesrv_ready{job=~"$job"}',
    is_listed=True,
)
TOPIC: Final = Variable(
    name="topic",
    label="topic",
    of=f'{{__name__=~"rocketmq_(messages_in_total|consumer_lag_messages)", {BROKERS}}}',
)
GROUP: Final = Variable(
    name="group",
    label="consumer_group",
    of=of("rocketmq_consumer_lag_messages", 'topic=~"$topic"'),
)

# --- annotations --------------------------------------------------------------------------------

_CHANGES: Final = "rocketmq_broker_role_changes_total"
_FROM_TO: Final = "{{node_id}} {{instance}}: {{from}} to {{to}}"


def _changed(*matchers: str) -> str:
    return f"increase({of(_CHANGES, *matchers)}[{INTERVAL}]) > 0"


ANNOTATIONS: Final = (
    Annotation(
        name="Promotion", color="purple", expression=_changed('from="slave"'), text=_FROM_TO
    ),
    Annotation(name="Demotion", color="orange", expression=_changed('to="slave"'), text=_FROM_TO),
    Annotation(
        name="Mode switch",
        color="blue",
        expression=_changed('from=~".+_master"', 'to=~".+_master"'),
        text=_FROM_TO,
    ),
    Annotation(
        name="New epoch",
        color="green",
        expression=f"changes({of('rocketmq_broker_epoch')}[{INTERVAL}]) > 0",
        text="{{node_id}} {{instance}}",
    ),
)

# --- levels and words ---------------------------------------------------------------------------

BAD_ABOVE_0: Final = levels("green", (1, "red"))
ODD_ABOVE_0: Final = levels("green", (1, "orange"))
PUT_LATENCY: Final = levels("green", (0.05, "yellow"), (0.2, "orange"), (1, "red"))
LOOP_LAG: Final = levels("green", (0.02, "yellow"), (0.1, "orange"), (0.25, "red"))
LAG_SECONDS: Final = levels("green", (60, "yellow"), (300, "red"))
DISK: Final = levels("green", (0.75, "yellow"), (0.85, "orange"), (0.9, "red"))
YES_NO: Final = (Word(1, "yes", "green"), Word(0, "no", "red"))

MASTER_ROLE: Final = 'role=~".+_master"'
ROLE_NUMBERS: Final = {
    'role="slave"': 1,
    'role="async_master"': 2,
    'role="sync_master"': 3,
}
ROLE_WORDS: Final = (
    Word(1, "slave", "text"),
    Word(2, "async master", "blue"),
    Word(3, "sync master", "green"),
)

_FENCED: Final = of("rocketmq_broker_refusal", 'reason="fenced"')
MASTERS: Final = total(
    f"{of('rocketmq_broker_role', MASTER_ROLE)} * on (job, instance) group_left () (1 - {_FENCED})",
    by="cluster, node_id",
)
"""How many masters a broker name has; one that is fenced takes no messages and is not counted."""
