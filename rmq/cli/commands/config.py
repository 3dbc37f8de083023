"""`rmq config ACTION`."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, broker_option, cluster_option, yes_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument, Option, flag, path_type

COMMAND: Final = Command(
    name="config",
    help="read, change, compare and check settings of brokers",
    actions=lambda: (
        Command(
            name="get",
            help="show settings of running brokers",
            description="Without KEY all settings. A value that all brokers share stands once.",
            params=admin_options(
                Argument("keys", "which ones", nargs=-1, metavar="KEY"),
                broker_option(),
                cluster_option(),
            ),
            run="rmq.cli.admin.settings:get",
            examples=(
                "rmq config get fileReservedTime flushDiskType",
                "rmq config get -b broker-a --json",
            ),
        ),
        Command(
            name="set",
            help="change settings of running brokers",
            description=(
                "Shows old and new values, asks, changes them at every master that is meant, and"
                " tells what a broker says of it, such as what waits for a restart."
            ),
            params=admin_options(
                Argument(
                    "changes", "what is to change", nargs=-1, required=True, metavar="KEY=VALUE"
                ),
                broker_option(),
                cluster_option(),
                flag("--dry-run", help="only show what would change"),
                yes_option(),
            ),
            run="rmq.cli.admin.settings:put",
            examples=("rmq config set fileReservedTime=24 -b broker-a",),
        ),
        Command(
            name="diff",
            help="compare settings of brokers with each other, or with a file",
            description=(
                "Lists the settings in which brokers differ. Names, addresses, ports and paths,"
                " which differ anyway, are left out unless told --all. With --file: what a file"
                " says and the broker (-b) does not. Exit code 1: there are differences."
            ),
            params=admin_options(
                Option(
                    "--file",
                    type=path_type(),
                    metavar="FILE",
                    help="compare a broker with this broker.conf",
                ),
                flag("--all", help="names, addresses, ports and paths, too"),
                broker_option(),
                cluster_option(),
            ),
            run="rmq.cli.admin.settings:diff",
            examples=("rmq config diff", "rmq config diff -b broker-a --file broker.conf"),
        ),
        Command(
            name="check",
            help="check a settings file before a broker gets it",
            description="Reads a broker.conf as a broker would, and says everything that is wrong.",
            params=(
                Argument("file", "usually broker.conf", type=path_type()),
                flag("--json", help="print JSON for scripts"),
            ),
            run="rmq.cli.admin.settings_reference:check",
            examples=("rmq config check broker.conf",),
        ),
        Command(
            name="reference",
            help="explain settings",
            description=(
                "Explains the settings whose keys or explanations have a word in them; all of"
                " them without one."
            ),
            params=(
                Argument("word", "a key, or a part of one", required=False),
                flag("--json", help="print JSON for scripts"),
            ),
            run="rmq.cli.admin.settings_reference:reference",
            examples=("rmq config reference fileReservedTime", "rmq config reference slave"),
        ),
    ),
    examples=(
        "rmq config get fileReservedTime",
        "rmq config set fileReservedTime=24 -b broker-a",
        "rmq config diff",
        "rmq config check broker.conf",
        "rmq config reference fileReservedTime",
    ),
)
