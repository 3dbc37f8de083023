"""Which changes a request may ask for: of settings that are guarded, none without admin rights.

Settings that say where files are, who is connected to, who may connect and what is secret are
guarded (`Setting.needs_admin`): a request that changes one of them would let its sender take a
broker over at its next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.errors import ConfigError
from rmq.settings.setting import MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.settings.schema import Schema, Values


def without_masks(schema: Schema, changes: Mapping[str, str]) -> dict[str, str]:
    """Leave out secrets as they are shown: a tool sends back what it was told."""
    return {
        key: text
        for key, text in changes.items()
        if not (key in schema and schema[key].secret and text.strip() == MASK)
    }


def guarded_changes(schema: Schema, values: Values, changes: Mapping[str, str]) -> list[str]:
    """Return the guarded keys that would get another value.

    A secret counts even if it is the one in force: the answer must not tell whether a guess is
    right.
    """
    return [
        key
        for key, text in changes.items()
        if key in schema and schema[key].needs_admin and _differs(schema, values, key, text)
    ]


def guarded_remark(keys: Iterable[str]) -> str:
    """Say why a change of guarded settings is refused, and what to do instead."""
    return (
        f"nothing was changed: {', '.join(keys)} can be changed in the settings file, followed by a"
        " restart, or by a request that an account with admin rights has signed (aclEnable=true)"
    )


def shown_changes(schema: Schema, changes: Mapping[str, str]) -> dict[str, str]:
    """Return changes as they may be logged."""
    return {
        key: schema[key].shown(text) if key in schema else text for key, text in changes.items()
    }


def _differs(schema: Schema, values: Values, key: str, text: str) -> bool:
    if schema[key].secret:
        return bool(text.strip() or values[key])
    try:
        return schema[key].parse(text) != values[key]
    except ConfigError:
        return True
