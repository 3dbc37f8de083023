"""Whether what a command printed is what its page shows.

Words, addresses and small numbers have to be the same. What differs from run to run has to be of
the same kind: a size, a time, an epoch, or, for a number of three digits and more, any but 0. A
line `...` stands for any lines, `...` within a line for any text. Blank lines and the width of
blanks do not count.
"""

from __future__ import annotations

import re
from typing import Final

_KINDS: Final = (
    # What stays as it is comes first: an address is no number.
    (r"\d+\.\d+\.\d+\.\d+(?::\d+)?|[A-Za-z][\w@.-]*\d[\w.-]*", None),
    (r"\.\.\.", ".*"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?", r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"),
    (r"\bepoch +\d+", r"epoch \d+"),
    (r"[\d.,]+ (?:B|[KMGT]iB)\b", r"[\d.,]+ (?:B|[KMGT]iB)"),
    (r"[\d.,]+ (?:ms|s|min|h|days?)\b", r"[\d.,]+ (?:ms|s|min|h|days?)"),
    (r"\d+ ?%", r"\d+ ?%"),
    (r"\d{1,3}(?:,\d{3})+|\d+\.\d+|\d{3,}", r"(?:[1-9][\d.,]*|0\.\d+)"),
)
_TOKEN: Final = re.compile("|".join(f"({kind})" for kind, _ in _KINDS))


def is_shown(expected: str, printed: str) -> bool:
    """Tell whether `printed` is what a page says by `expected`."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else f"{_pattern(line)}\n" for line in _lines(expected)
    )
    text = "".join(f"{line}\n" for line in _lines(printed))
    return re.fullmatch(pattern, text) is not None


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line]


def _pattern(line: str) -> str:
    parts: list[str] = []
    end = 0
    for found in _TOKEN.finditer(line):
        kind = _KINDS[(found.lastindex or 1) - 1][1]
        parts.append(re.escape(line[end : found.start()]))
        parts.append(re.escape(found[0]) if kind is None else kind)
        end = found.end()
    parts.append(re.escape(line[end:]))
    return "".join(parts)
