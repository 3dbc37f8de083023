"""Texts with places to fill in: `{{name}}`.

A place that stands alone in a line takes a text of several lines, and gives all of them its own
indentation.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK: Final = re.compile(r"^([ \t]*)\{\{(\w+)\}\}\n", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


def template(name: str) -> str:
    """Return the text of a file in `data`."""
    return files("rmq.cli.generate.data").joinpath(name).read_text(encoding="utf-8")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with all places filled in; raise KeyError for one without a value."""

    def block(found: re.Match[str]) -> str:
        indentation, lines = found[1], values[found[2]].splitlines()
        return "".join(f"{indentation}{line}".rstrip() + "\n" for line in lines)

    return _PLACE.sub(lambda found: values[found[1]], _BLOCK.sub(block, text))
