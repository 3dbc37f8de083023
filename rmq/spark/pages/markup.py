"""Pieces of HTML and SVG that can be put into a page as they are.

Names of topics and groups, hosts and bodies are not trusted: what is shown on a page is either made
here, which escapes it, or written by us. `Markup` keeps the two apart, for readers and for mypy.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from collections.abc import Iterable

Markup = NewType("Markup", str)

Attribute = str | int | float | bool | None

NOTHING: Final = Markup("")
_VOID: Final = frozenset({"meta", "br", "link", "line", "rect", "circle", "path", "stop"})
_CONTROL: Final = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), 0x7F, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"
)
"""Characters that HTML and UTF-8 do not have."""


def text(value: object) -> Markup:
    """Return text as it can stand on a page."""
    return Markup(escape(str(value).translate(_CONTROL), quote=True))


def element(name: str, /, *children: Markup, **attributes: Attribute) -> Markup:
    """Return an element.

    In names of attributes an underscore stands for a hyphen, and one at the end is dropped
    (`class_`). What is None or False is left out; numbers have at most two decimals.
    """
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if not children and name in _VOID:
        return Markup(f"<{name}{opened}/>")
    return Markup(f"<{name}{opened}>{''.join(children)}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Return pieces one after the other."""
    return Markup("".join(parts))


def number(value: float) -> str:
    """Return a coordinate, short."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _attribute(value: Attribute) -> str:
    if value is True:
        return ""
    if isinstance(value, int | float):
        return number(value)
    return text(value)
