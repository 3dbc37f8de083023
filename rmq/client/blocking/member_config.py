"""The settings of a producer or consumer, given one by one or all at once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

C = TypeVar("C")


def member_config(
    kind: Callable[..., C], config: C | None, group: str | None, options: Mapping[str, object]
) -> C:
    """Return `config`, or one made of `group` and options; raise `ConfigError` for both or none."""
    if config is None:
        if group is None:
            raise ConfigError("group", "none is given", hint="name the group, or give a config")
        return kind(group=group, **options)
    if group is not None or options:
        raise ConfigError("config", "is given, and settings beside it, too")
    return config
