"""Reading what mqadmin prints: tables, fields, settings, messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from interop.support.cases import MismatchError


def table(output: str, *, columns: int) -> list[list[str]]:
    """Return the rows of a table; the last column may hold blanks."""
    return [
        line.strip().split(None, columns - 1)
        for line in output.splitlines()
        if line.strip() and not line.startswith(("#", "-"))
    ]


def fields(output: str) -> dict[str, str]:
    """Return lines of the form `Name:    value`."""
    found = re.findall(r"^([A-Z][A-Za-z ]+):[ \t]+(.*)$", output, re.MULTILINE)
    return {name: value.strip() for name, value in found}


def settings(output: str) -> dict[str, str]:
    """Return lines of the form `name    =  value`."""
    return dict(re.findall(r"^(\S+) *=  (.*)$", output, re.MULTILINE))


def runtime_values(output: str) -> dict[str, str]:
    """Return lines of the form `name    : value`."""
    return dict(re.findall(r"^(\S+) *: (.*)$", output, re.MULTILINE))


@dataclass(frozen=True)
class PrintedMessage:
    """A message as printMsg and its kin show it."""

    message_id: str
    queue_id: int
    queue_offset: int
    store_bytes: int
    body: str


_MESSAGE = re.compile(
    r"^MSGID: (\S+) MessageExt \[brokerName=\S+, queueId=(\d+), storeSize=(\d+),"
    r" queueOffset=(\d+), .* BODY: (.*)$",
    re.MULTILINE,
)


def messages(output: str) -> list[PrintedMessage]:
    """Return the messages, in the order they were printed."""
    return [
        PrintedMessage(found[0], int(found[1]), int(found[3]), int(found[2]), found[4])
        for found in _MESSAGE.findall(output)
    ]


def only(pattern: str, output: str) -> str:
    """Return the one thing a pattern finds (its group, if it has one)."""
    found: list[str] = re.findall(pattern, output)
    if len(found) != 1:
        raise MismatchError(f"expected {pattern!r} once in {output!r}")
    return found[0]
