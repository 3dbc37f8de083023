"""`rmq ha ACTION`: replication as its operators meet it."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.common.client_options import add_account_arguments, add_tls_arguments
from rmq.cli.common.command import Command, add_global_options_again
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.cli.ha import actions as ha_actions
from rmq.cli.ha.change import MODES
from rmq.errors import ConfigError
from rmq.remoting.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    _Actions = argparse._SubParsersAction[argparse.ArgumentParser]

TIMEOUT_S: Final = 5.0


def run(args: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = args.action
    try:
        return action(args)
    except UsageError as wrong:
        print(f"rmq ha {_name_of(action)}: error: {wrong}", file=sys.stderr)
        return ExitCode.USAGE


def _name_of(action: Callable[[argparse.Namespace], int]) -> str:
    return action.__name__.replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_status(actions)
    _add_switch(actions)
    _add_promote(actions)
    _add_hand_over(actions)
    _add_demote(actions)
    _add_resync(actions)
    _add_forget(actions)
    _add_verify(actions)


def _add_status(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.status,
        "show how replication is going",
        "Shows the mode, which slaves are in sync, how far each is behind, and what is wrong with"
        "\nwhat to do about it. Exit code 0: healthy; 1: not. With -n and no --name: all brokers.",
    )
    parser.add_argument(
        "--watch", type=_seconds, metavar="SECONDS", help="show it again at this interval"
    )


def _add_switch(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.switch,
        "answer sends with or without waiting for slaves",
        "Switches a running master between sync (a send is answered when slaves in sync hold the"
        "\nmessage, too) and async. Tells the offset of the log from which on it is so. No send"
        " fails\nby it, and those that wait go on waiting. The setting is saved (brokerRole).",
    )
    parser.add_argument("mode", choices=tuple(MODES), help="what it is to be")
    parser.add_argument(
        "--force", action="store_true", help="to sync even if too few slaves are in sync"
    )


def _add_promote(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.promote,
        "make a slave the master",
        "Makes a slave the master of its broker name, without a restart. A master that answers"
        " stops\nwriting first, and the slave takes over when it has everything. If acknowledged"
        " messages may\nbe missing, the slave refuses unless told --accept-loss.",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="even if acknowledged messages may be lost",
    )
    parser.add_argument(
        "--mode",
        choices=tuple(MODES),
        help="what the new master is to be (default: as the old one)",
    )
    _add_yes(parser)


def _add_hand_over(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.hand_over,
        "have a slave take the place of a master that is to stop",
        "Promotes the slave in sync that has most, before a planned stop of the master. Does"
        " nothing,\nwith exit code 0, if the broker is no master: so it may stand in front of any"
        " stop.",
    )
    _add_yes(parser)


def _add_forget(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.forget,
        "have a master forget a slave that was taken out for good",
        "Refused for a slave that is connected, and for one that the in-sync record names: that one"
        "\nmay hold what was answered SEND_OK.",
    )
    parser.add_argument(
        "--slave",
        required=True,
        metavar="HOST:PORT|NAME",
        help="as `rmq ha status` shows it: its address, or its name (broker-a:1)",
    )


def _add_demote(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.demote,
        "make a master a slave",
        "Makes a master a slave, without a restart: it takes no more messages and follows another."
        "\nPromote the other one first: it tells this one to stop. Exit code 1: it has diverged, or"
        "\nno broker of the name takes messages now.",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also while no other master is known: then no broker takes messages",
    )
    _add_yes(parser)
    parser.add_argument(
        "--follow",
        type=_address,
        metavar="HOST:PORT",
        help="port for slaves (listenPort + 1) of the master to follow; default: the one that the"
        " nameservers name",
    )


def _add_resync(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        ha_actions.resync,
        "cut off a slave's log what its master does not have",
        "For a slave that has diverged: finds where its log and the master's part, shows what is to"
        "\nbe cut off, asks, and cuts. What is cut is lost. A crash at any moment does no harm.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be cut")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the messages to this file first, one per line, as `rmq produce --json` takes"
        " them; nothing is cut unless all of them are on disk",
    )
    _add_yes(parser)


def _add_verify(actions: _Actions) -> None:
    _add_action(
        actions,
        ha_actions.verify,
        "compare the logs of master and slaves while they run",
        "Compares digests of everything that both hold, in ranges of 16 MiB. Names the first place"
        "\nthat differs, to 64 KiB. Exit code 0: the same; 1: not.",
    )


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_action(
    actions: _Actions,
    action: Callable[[argparse.Namespace], int],
    help_text: str,
    description: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        _name_of(action),
        help=help_text,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(action=action)
    which = parser.add_argument_group("which broker")
    which.add_argument(
        "-b", "--broker", type=_address, metavar="HOST:PORT", help="this one (its listenPort)"
    )
    which.add_argument(
        "-n",
        "--nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="those this nameserver knows (default: $NAMESRV_ADDR)",
    )
    which.add_argument("--name", metavar="BROKER", help="those of this brokerName")
    add_account_arguments(parser.add_argument_group("account"))
    add_tls_arguments(parser.add_argument_group("encryption"))
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for an answer (%(default)g); changes of roles may take longer",
    )
    add_global_options_again(parser)
    return parser


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ConfigError as wrong:
        raise argparse.ArgumentTypeError(wrong.reason) from None
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


COMMAND: Final = Command(
    name="ha",
    help="see and change replication between master and slaves",
    description=(
        "Shows the state of replication, switches its mode, changes the master, repairs a slave"
        " that has diverged and compares logs. All of it works on running brokers."
    ),
    add_arguments=add_arguments,
    run=run,
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
