"""`rmq ha ACTION`: replication as its operators meet it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rmq.cli.common.cluster_options import (
    NAMESERVERS_METAVAR,
    account_options,
    context_option,
    tls_options,
)
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import ADDRESS, SECONDS, Argument, Option, flag, path_type

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S: Final = 5.0
_WHICH: Final = "which broker"
_MODE: Final = click.Choice(("sync", "async"))


def _action(name: str, help: str, description: str, *own: click.Parameter) -> Command:
    return Command(
        name=name,
        help=help,
        description=description,
        params=(*own, *_everywhere()),
        run=f"rmq.cli.ha.actions:{name.replace('-', '_')}",
    )


def _everywhere() -> Sequence[click.Parameter]:
    return (
        Option(
            "-b",
            "--broker",
            type=ADDRESS,
            metavar="HOST:PORT",
            section=_WHICH,
            help="this one (its listenPort)",
        ),
        Option(
            "-n",
            "--nameservers",
            metavar=NAMESERVERS_METAVAR,
            section=_WHICH,
            help="those this nameserver knows (default: $NAMESRV_ADDR, else those of the context)",
        ),
        context_option(_WHICH),
        Option("--name", metavar="BROKER", section=_WHICH, help="those of this brokerName"),
        *account_options("account"),
        *tls_options("encryption"),
        flag("--json", help="print JSON for scripts"),
        Option(
            "--timeout",
            type=SECONDS,
            default=TIMEOUT_S,
            metavar="SECONDS",
            help=f"how long to wait for an answer ({TIMEOUT_S:g}); changes of roles may take"
            " longer",
        ),
    )


def _yes() -> Option:
    return flag("--yes", help="do not ask")


COMMAND: Final = Command(
    name="ha",
    help="see and change replication between master and slaves",
    description=(
        "Shows the state of replication, switches its mode, changes the master, repairs a slave"
        " that has diverged and compares logs. All of it works on running brokers."
    ),
    actions=lambda: (
        _action(
            "status",
            "show how replication is going",
            "Shows the mode, which slaves are in sync, how far each is behind, and what is wrong"
            " with what to do about it. Exit code 0: healthy; 1: not. With -n and no --name: all"
            " brokers.",
            Option(
                "--watch",
                type=SECONDS,
                metavar="SECONDS",
                help="show it again at this interval",
            ),
        ),
        _action(
            "switch",
            "answer sends with or without waiting for slaves",
            "Switches a running master between sync (a send is answered when slaves in sync hold"
            " the message, too) and async. Tells the offset of the log from which on it is so. No"
            " send fails by it, and those that wait go on waiting. The setting is saved"
            " (brokerRole).",
            Argument("mode", "what it is to be", type=_MODE, metavar="sync|async"),
            flag("--force", help="to sync even if too few slaves are in sync"),
        ),
        _action(
            "promote",
            "make a slave the master",
            "Makes a slave the master of its broker name, without a restart. A master that answers"
            " stops writing first, and the slave takes over when it has everything. If"
            " acknowledged messages may be missing, the slave refuses unless told --accept-loss.",
            flag("--accept-loss", help="even if acknowledged messages may be lost"),
            Option(
                "--mode", type=_MODE, help="what the new master is to be (default: as the old one)"
            ),
            _yes(),
        ),
        _action(
            "hand-over",
            "have a slave take the place of a master that is to stop",
            "Promotes the slave in sync that has most, before a planned stop of the master. Does"
            " nothing, with exit code 0, if the broker is no master: so it may stand in front of"
            " any stop.",
            _yes(),
        ),
        _action(
            "demote",
            "make a master a slave",
            "Makes a master a slave, without a restart: it takes no more messages and follows"
            " another. Promote the other one first: it tells this one to stop. Exit code 1: it has"
            " diverged, or no broker of the name takes messages now.",
            flag(
                "--force",
                help="also while no other master is known: then no broker takes messages",
            ),
            _yes(),
            Option(
                "--follow",
                type=ADDRESS,
                metavar="HOST:PORT",
                help="port for slaves (listenPort + 1) of the master to follow; default: the one"
                " that the nameservers name",
            ),
        ),
        _action(
            "resync",
            "cut off a slave's log what its master does not have",
            "For a slave that has diverged: finds where its log and the master's part, shows what"
            " is to be cut off, asks, and cuts. What is cut is lost. A crash at any moment does no"
            " harm.",
            flag("--dry-run", help="only show what would be cut"),
            Option(
                "--save",
                type=path_type(),
                metavar="FILE",
                help="write the messages to this file first, one per line, as `rmq produce --json`"
                " takes them; nothing is cut unless all of them are on disk",
            ),
            _yes(),
        ),
        _action(
            "forget",
            "have a master forget a slave that was taken out for good",
            "Refused for a slave that is connected, and for one that the in-sync record names:"
            " that one may hold what was answered SEND_OK.",
            Option(
                "--slave",
                required=True,
                metavar="HOST:PORT|NAME",
                help="as `rmq ha status` shows it: its address, or its name (broker-a:1)",
            ),
        ),
        _action(
            "verify",
            "compare the logs of master and slaves while they run",
            "Compares digests of everything that both hold, in ranges of 16 MiB. Names the first"
            " place that differs, to 64 KiB. Exit code 0: the same; 1: not.",
        ),
    ),
    examples=(
        "rmq ha status -n 127.0.0.1:9876 --name broker-a",
        "rmq ha status -b 127.0.0.1:10911 --json",
        "rmq ha switch sync -b 127.0.0.1:10911",
        "rmq ha promote -b 127.0.0.1:10921 --mode sync",
        "rmq ha hand-over -b 127.0.0.1:10911 --yes",
        "rmq ha demote -b 127.0.0.1:10911",
        "rmq ha resync -b 127.0.0.1:10921 --dry-run",
        "rmq ha resync -b 127.0.0.1:10921 --save cut.jsonl",
        "rmq ha forget -b 127.0.0.1:10911 --slave 127.0.0.1:10931",
        "rmq ha verify -n 127.0.0.1:9876 --name broker-a",
    ),
)
