"""Feeds damaged files of access control to their reader, and reports what should not happen.

    python -m tests.fuzz.fuzz_access [--files N] [--seed S] [--start I]

A file is read or refused with a `ConfigError` that shows no secret. One that is read can be written
and read again, and says the same then. Every file comes of the seed and its number alone. The exit
code is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq.access.document import format_document, read_document
from rmq.access.rules import Rules
from rmq.access.white_list import address_of
from rmq.errors import ConfigError
from rmq.settings.yaml_file import parse_yaml
from tests.access.access_kit import ACL
from tests.access.test_document import STOCK_FILE
from tests.fuzz.mutations import mutated_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.access.document import Document

FILES: Final = 100_000
SEED: Final = 4098
SECRET: Final = "hush-hush"
FINDINGS_MAX: Final = 20
_SEEDS: Final = (
    ACL.replace("user-secret", SECRET).encode(),
    STOCK_FILE.replace("12345678", SECRET).encode(),
    b"globalWhiteRemoteAddresses: ['*', 10.0.0.*, 10.0.0.{1,2}, 10.0.1-5.*, '::1', 1::2-3:*]\n"
    b"accounts: [{accessKey: some-key, secretKey: hush-hush, whiteRemoteAddress: 10.0.0.1}]\n"
    b"dataVersion: [{counter: 5, timestamp: 1700000000000}]\n",
)
_HOSTS: Final = ("10.0.0.1", "255.255.255.255", "::1", "1::2:3", "no address")


@dataclass
class Report:
    """What a run has come to."""

    read: int = 0
    refused: int = 0
    findings: list[str] = field(default_factory=list)


def fuzz(files: int = FILES, *, seed: int = SEED, start: int = 0) -> Report:
    report = Report()
    for number in range(start, start + files):
        data = _damaged_file(random.Random(f"{seed}/{number}"))
        try:
            is_read = examine(data)
        except Exception:  # noqa: BLE001 - that is what is sought
            if len(report.findings) < FINDINGS_MAX:
                report.findings.append(f"number {number}: {data!r}\n{traceback.format_exc()}")
        else:
            report.read += is_read
            report.refused += not is_read
    return report


def examine_one(chance: random.Random) -> str:
    """Examine one damaged file; say what became of it."""
    return "read" if examine(_damaged_file(chance)) else "refused"


def _damaged_file(chance: random.Random) -> bytes:
    data = chance.choice(_SEEDS)
    for _ in range(chance.randint(1, 3)):
        data = mutated_text(data, chance)
    return data


def examine(data: bytes) -> bool:
    """Return whether a file is read; raise for what must not happen."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    try:
        members = parse_yaml(text, "file")
        document = read_document(members, "file", 1)
    except ConfigError as exc:
        is_secret = text.count(SECRET) == 1 and f"secretKey: {SECRET}" in text
        if is_secret and SECRET in f"{exc} {exc.hint}":
            raise AssertionError("a secret is shown") from exc
        return False
    again = read_document(parse_yaml(format_document(members), "file"), "file", 1)
    assert _content(again) == _content(document), "what was written says something else"
    rules = Rules(document.accounts, document.white_lists)
    assert len(rules.accounts) <= len(document.accounts)
    for host in _HOSTS:
        for white_list in document.white_lists:
            white_list.matches(address_of(host))
    return True


def _content(document: Document) -> object:
    accounts = [
        (
            each.access_key,
            each.secret_key,
            each.white_list.text,
            each.is_admin,
            each.default_topic_permission,
            each.default_group_permission,
            each.permissions,
        )
        for each in document.accounts
    ]
    return accounts, [each.text for each in document.white_lists], document.version


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Feed damaged files of access control.")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--start", type=int, default=0)
    args = parser.parse_args(arguments)
    report = fuzz(args.files, seed=args.seed, start=args.start)
    print("\n".join(report.findings))
    print(
        f"{args.files} files, {report.read} read, {report.refused} refused,"
        f" {len(report.findings)} findings, seed {args.seed}"
    )
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
