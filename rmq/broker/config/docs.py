"""Writes the tables of settings in the documentation from the settings themselves.

    python -m rmq.broker.config.docs docs/broker-config.md

replaces what stands between the two marks in that file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.broker.config.schema import SCHEMA, SECTIONS
from rmq.settings.schema import Effect, Kind, Setting, format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN: Final = "<!-- settings: made by rmq.broker.config.docs -->\n"
END: Final = "<!-- settings: end -->\n"

_TITLES: Final = {
    "broker": "Broker",
    "server": "Connections of clients",
    "client": "Connections to nameservers and brokers",
    "store": "Store and replication",
    "system": "System properties of a Java broker",
    "tls": "TLS",
    "rmq": "Keys of rmq only",
}


def settings_tables() -> str:
    """Tables of all settings in Markdown: those with a meaning by section, then the ignored."""
    parts: list[str] = []
    for section in SECTIONS:
        rows = [
            _row(setting)
            for setting in SCHEMA
            if setting.section == section and setting.effect is not Effect.IGNORED
        ]
        parts.append(_table(_TITLES[section], ("key", "default", "meaning", "new value"), rows))
    refused = [
        (_code(setting.key), _code(format_value(setting.default)), f"{setting.refused}.")
        for setting in SCHEMA
        if setting.refused
    ]
    parts.append(_table("Refused", ("key", "only value", "any other is refused because"), refused))
    ignored = [
        (_code(setting.key), _default(setting), setting.help)
        for setting in SCHEMA
        if setting.effect is Effect.IGNORED and not setting.refused
    ]
    parts.append(_table("Ignored", ("key", "default", "why"), ignored))
    return "\n".join(parts)


def with_tables(page: str) -> str:
    """Return the page with the tables up to date."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page lacks the marks between which the tables stand")
    return f"{before}{BEGIN}\n{settings_tables()}\n{END}{after}"


def _row(setting: Setting) -> tuple[str, ...]:
    counts = f"{setting.effect.value}, admin" if setting.needs_admin else setting.effect.value
    return _code(setting.key), _default(setting), _meaning(setting), counts


def _meaning(setting: Setting) -> str:
    if setting.kind is Kind.CHOICE:
        return f"{setting.help} {' '.join(_code(choice) for choice in setting.choices)}"
    return setting.help


def _default(setting: Setting) -> str:
    if setting.default_text is not None:
        return setting.default_text
    return "not set" if setting.default is None else _code(format_value(setting.default))


def _code(text: str) -> str:
    return f"`{text}`" if text else "empty"


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"### {title}", "", _line(head), _line(("---",) * len(head)), *map(_line, rows), ""]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main(pages: Sequence[str]) -> None:
    """Bring the tables of the given pages up to date."""
    for page in pages:
        Path(page).write_text(with_tables(Path(page).read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
