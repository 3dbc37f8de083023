r"""Settings as text, `key=value` by line: bodies of the config requests 25, 26, 318 and 319.

Reading follows `java.util.Properties`: blank lines and lines that begin with `#` or `!` are
skipped, a key ends at the first `=`, `:` or blank, a line that ends in a backslash goes on in the
next one without its leading blanks, `\t`, `\n`, `\r`, `\f` and `\uXXXX` are the characters they
name, and before anything else a backslash vanishes. The last of several lines for a key counts.

Writing follows RocketMQ 4.9.8 MixAll, which escapes nothing: a value with a backslash reads back
without it. What would read back as other keys is refused.

Text is UTF-8 in both directions. Java reads it as ISO 8859-1 although it writes UTF-8, and so gets
values beyond ASCII wrong; there is no use in doing the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmq.errors import LocalProtocolError
from rmq.remoting.bodies.base import BodyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_MEMBER: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+(?:[=:][ \t\f]*+)?+(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BAD_ESCAPE: Final = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*+\\u", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def parse_properties(data: bytes | None) -> dict[str, str]:
    """Read settings, in the order they are given; raise `BodyError` with the number of the line."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError as exc:
        raise BodyError("is not UTF-8", body="properties", path=f"byte {exc.start}") from None
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.match(line):
            reason = r"\u without four hexadecimal digits"
            raise BodyError(reason, body="properties", path=f"line {number}")
        member = _MEMBER.match(line)
        assert member is not None, "_MEMBER also matches nothing"
        properties[_unescaped(member[1])] = _unescaped(member[2])
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Write settings in the order given; raise `LocalProtocolError` for one that spans lines."""
    lines: list[str] = []
    for key, value in properties.items():
        line = f"{key}={value}"
        if "\n" in line or "\r" in line:
            raise LocalProtocolError(f"setting {key!r} contains a line break")
        lines.append(line + "\n")
    return "".join(lines).encode("utf-8", "replace")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that hold a member, continued ones joined, with the number of their first."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        content = line.lstrip(_BLANKS)
        if not parts:
            if not content or content[0] in "#!":
                continue
            first = number
        backslashes = len(content) - len(content.rstrip("\\"))
        if backslashes % 2:
            parts.append(content[:-1])
            continue
        parts.append(content)
        yield first, "".join(parts)
        parts = []
    if parts:
        yield first, "".join(parts)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(
        lambda escape: chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[2], escape[2]),
        text,
    )
    if _SURROGATE.search(text):
        # Java's characters are UTF-16 units, so two escapes may be one character.
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        text = _SURROGATE.sub("?", joined)
    return text
