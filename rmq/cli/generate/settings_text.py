"""Texts of `broker.conf` and `namesrv.conf`, with comments. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.broker.config.schema import SCHEMA
from rmq.cli.generate.deployment import FILLED_IN, NAMESERVER_PORT
from rmq.nameserver.config import SCHEMA as NAMESERVER_SCHEMA
from rmq.settings.properties_file import format_member

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment

SLAVE: Final = "SLAVE"
_WIDTH: Final = 96

Line = tuple[str, str | None, str]
"""A key, its value (None: the line is a suggestion, behind a `#`), and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker of a deployment."""

    title: str
    name: str
    role: str | None
    """brokerRole; None: what starts it adds brokerRole and brokerId."""
    number: int = 0
    slaves: int = 0
    """How many slaves the name has."""
    store: str = ""
    metrics_address: str | None = None
    """None: the loopback address."""


def broker_text(deployment: Deployment, broker: Broker) -> str:
    """Return the `broker.conf` of a broker."""
    sections = [
        ("Who it is", list(_identity(deployment, broker))),
        ("Where it is", list(_places(deployment))),
        ("What a producer is guaranteed", list(_guarantees(deployment, broker))),
        ("What is kept, where and for how long", list(_store(deployment, broker))),
        ("Who may use it", list(_access(deployment))),
        ("How it is watched", list(_metrics(deployment, broker))),
    ]
    written = FILLED_IN.union(
        key for _, lines in sections for key, value, _ in lines if value is not None
    )
    others: list[Line] = [(key, value, "") for key, value in deployment.other_settings(written)]
    if others:
        sections.append((f"Other settings of {deployment.source}", others))
    head = [
        *_comment(broker.title),
        "#",
        *_comment(
            "`rmq broker -c FILE -p` prints all settings as they would be used;"
            " docs/broker-config.md explains all keys."
        ),
    ]
    head += [f"# {key} is secret and was left out: add it here." for key in deployment.left_out]
    return "\n".join([*head, *_rendered(sections)]) + "\n"


def nameserver_text(
    *, kv_path: str | None, metrics_port: int, metrics_address: str | None = None
) -> str:
    """Return a `namesrv.conf`."""
    known: list[Line] = [
        ("metricsPort", str(metrics_port), "For Prometheus, and for /healthz and /readyz."),
        ("metricsAddress", metrics_address or "127.0.0.1", "It has neither TLS nor a password."),
    ]
    sections: list[tuple[str, list[Line]]] = [
        (
            "Where it is",
            [("listenPort", str(NAMESERVER_PORT), "Brokers and clients connect to this port.")],
        ),
        (
            "What it keeps",
            [
                (
                    "kvConfigPath",
                    kv_path,
                    "The in-sync records of masters are among it: keep it on a disk that lasts.",
                )
            ],
        ),
        ("How it is watched", [line for line in known if line[0] in NAMESERVER_SCHEMA]),
    ]
    head = [
        *_comment(
            "A nameserver. Run three of them on three machines: masters need most of them to record"
            " a change."
        ),
        "#",
        *_comment(
            "`rmq namesrv -c FILE -p` prints all settings as they would be used; docs/nameserver.md"
            " explains all keys."
        ),
    ]
    return "\n".join([*head, *_rendered(each for each in sections if each[1])]) + "\n"


# --- the sections of broker.conf ----------------------------------------------------------------


def _identity(deployment: Deployment, broker: Broker) -> Iterable[Line]:
    yield "brokerClusterName", deployment.cluster, "Brokers of one cluster share this name."
    yield (
        "brokerName",
        broker.name,
        "A master and its slaves share this name; other masters have others.",
    )
    if broker.role is not None:
        yield (
            "brokerId",
            str(broker.number),
            "0 is the master, each slave has a number of its own. A promotion changes this line and"
            " the next: let the tool that manages this file leave them alone.",
        )
        yield "brokerRole", broker.role, _ROLES[broker.role]


def _places(deployment: Deployment) -> Iterable[Line]:
    port = deployment.port
    yield (
        "listenPort",
        str(port),
        f"For clients; {port - 2} is opened for them, too, and {port + 1} for slaves.",
    )
    yield (
        "namesrvAddr",
        ";".join(deployment.nameservers),
        "All nameservers. With three of them one may be gone.",
    )
    yield "brokerIP1", None, "Address that clients are told; set it where the machine has several."
    yield (
        "brokerIP2",
        None,
        "Address that slaves are told. Where brokerIP1 is set, set this one as well.",
    )


def _guarantees(deployment: Deployment, broker: Broker) -> Iterable[Line]:
    yield (
        "flushDiskType",
        deployment.setting("flushDiskType", "ASYNC_FLUSH"),
        "ASYNC_FLUSH: an answer means that the process has the message; it is on disk within 0.5 s."
        " SYNC_FLUSH: an answer means that it is on disk.",
    )
    if not broker.slaves:
        yield "expectedSlaves", "0", "A lone master is meant: `rmq ha status` calls it healthy."
        return
    yield (
        "expectedSlaves",
        deployment.setting("expectedSlaves", str(broker.slaves)),
        "With fewer, `rmq ha status` calls this name not healthy.",
    )
    yield (
        "inSyncReplicas",
        deployment.setting("inSyncReplicas", "1"),
        "With SYNC_MASTER: this many slaves must hold a message before its send is answered.",
    )
    yield (
        "minInSyncReplicas",
        deployment.setting("minInSyncReplicas", "0"),
        "With SYNC_MASTER: with fewer slaves in sync, messages are refused before they are stored."
        " 0: they are stored on the master alone, and the answer says SLAVE_NOT_AVAILABLE.",
    )
    yield (
        "haSecret",
        None,
        "At least 16 characters, the same on master and slaves. Without it, every host that reaches"
        f" port {deployment.port + 1} gets all messages and can count as a slave.",
    )


def _store(deployment: Deployment, broker: Broker) -> Iterable[Line]:
    yield (
        "storePathRootDir",
        broker.store,
        "A disk of its own: what is full or slow here is full or slow for all clients.",
    )
    yield (
        "fileReservedTime",
        deployment.setting("fileReservedTime", "72"),
        "Hours after which files of the log are deleted, read or not.",
    )
    yield (
        "deleteWhen",
        deployment.setting("deleteWhen", "04"),
        "The hour of the day in which that happens; a full disk does not wait for it.",
    )


def _access(deployment: Deployment) -> Iterable[Line]:
    yield (
        "autoCreateTopicEnable",
        deployment.setting("autoCreateTopicEnable", "false"),
        "false: topics are created by operators (mqadmin updateTopic), not by a misspelt name.",
    )
    yield (
        "aclEnable",
        deployment.setting("aclEnable", "false"),
        "true: requests need an account (plain_acl.yml beside this file; docs/access.md).",
    )


def _metrics(deployment: Deployment, broker: Broker) -> Iterable[Line]:
    yield (
        "metricsPort",
        str(deployment.metrics_port),
        "For Prometheus, and for /healthz and /readyz.",
    )
    if "metricsAddress" in SCHEMA:
        address = broker.metrics_address or deployment.setting("metricsAddress", "127.0.0.1")
        yield (
            "metricsAddress",
            address,
            "It has neither TLS nor a password: open it to the network of Prometheus only.",
        )


_ROLES: Final = {
    "SYNC_MASTER": "SYNC_MASTER: a send is answered when slaves in sync hold the message, too."
    " ASYNC_MASTER: when the master holds it. `rmq ha switch` changes it while the broker runs.",
    "ASYNC_MASTER": "ASYNC_MASTER: a send is answered when the master holds the message."
    " SYNC_MASTER: when slaves in sync hold it, too. `rmq ha switch` changes it while the broker"
    " runs.",
    SLAVE: "SLAVE: it copies its master. `rmq ha promote` makes it the master.",
}


# --- the form -----------------------------------------------------------------------------------


def _rendered(sections: Iterable[tuple[str, list[Line]]]) -> Iterable[str]:
    for title, lines in sections:
        yield ""
        yield f"# --- {title} ".ljust(_WIDTH, "-")
        for key, value, meaning in lines:
            if meaning:
                yield ""
                yield from _comment(meaning)
            yield f"# {key}=" if value is None else format_member(key, value)


def _comment(text: str) -> Iterable[str]:
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH:
            yield line
            line = "#"
        line = f"{line} {word}"
    yield line
