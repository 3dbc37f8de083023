"""Settings without a broker: `rmq config check` and `reference`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rmq.broker.config.loading import load_broker_config
from rmq.broker.config.schema import SCHEMA
from rmq.cli.admin.session import NothingFoundError
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import ODD, Styled, print_facts, print_json
from rmq.settings.schema import Effect, Kind, format_value

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.settings.schema import Setting

_EFFECTS = {
    Effect.NOW: "at once",
    Effect.RESTART: "with a restart",
    Effect.IGNORED: "never: it means nothing here",
}


def check(args: Namespace) -> int:
    """Read a file as a broker would."""
    loaded = load_broker_config(args.file, {}, os.environ)
    config = loaded.config
    found = {
        "file": str(args.file),
        "broker": config.broker_name,
        "role": config.role.value,
        "address": config.address,
        "warnings": list(loaded.warnings),
    }
    if args.json:
        print_json(found)
        return ExitCode.OK
    for warning in loaded.warnings:
        print(f"warning: {warning}")
    print(
        f"{args.file} is right: {config.role.value} {config.broker_name}, announced as"
        f" {config.address}"
    )
    return ExitCode.OK


def reference(args: Namespace) -> int:
    """Explain settings."""
    found = _matching(args.word)
    if not found:
        near = SCHEMA.nearest(args.word)
        raise NothingFoundError(
            f"no setting has {args.word!r} in its key or its explanation",
            hint=f"did you mean {near}?" if near else None,
        )
    if args.json:
        print_json({"settings": [_json(setting) for setting in found]})
        return ExitCode.OK
    for number, setting in enumerate(found):
        if number:
            print()
        print_facts(
            [
                ("key", Styled(setting.key, "bold")),
                ("meaning", setting.help),
                ("value", _values(setting)),
                ("default", _default(setting) or "not set"),
                ("a new one counts", Styled(_EFFECTS[setting.effect], _style(setting))),
            ]
        )
    return ExitCode.OK


def _matching(word: str | None) -> list[Setting]:
    if word is None:
        return list(SCHEMA)
    if word in SCHEMA:
        return [SCHEMA[word]]
    lower = word.lower()
    return [
        setting
        for setting in SCHEMA
        if lower in setting.key.lower() or lower in setting.help.lower()
    ]


def _json(setting: Setting) -> dict[str, Any]:
    return {
        "key": setting.key,
        "meaning": setting.help,
        "kind": setting.kind.value,
        "choices": list(setting.choices),
        "default": _default(setting),
        "effect": setting.effect.value,
        "is_secret": setting.secret,
        "needs_admin": setting.needs_admin,
        "section": setting.section,
    }


def _values(setting: Setting) -> str:
    return ", ".join(setting.choices) if setting.kind is Kind.CHOICE else setting.kind.value


def _default(setting: Setting) -> str | None:
    if setting.default_text is not None:
        return setting.default_text
    return None if setting.default is None else format_value(setting.default)


def _style(setting: Setting) -> str:
    return ODD if setting.effect is Effect.IGNORED else ""
