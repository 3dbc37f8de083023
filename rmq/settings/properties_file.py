r"""Text in the form of `java.util.Properties`: read, and changed with all comments kept.

Blank lines and lines that begin with `#` or `!` are skipped, a key ends at the first `=`, `:` or
blank, a line that ends in a backslash goes on in the next one without its leading blanks, `\t`,
`\n`, `\r`, `\f` and `\uXXXX` are the characters they name, and before anything else a backslash
vanishes.

`with_changes` gives text in which only the values that differ were rewritten: comments, order and
layout of all other lines stay as they are. What it writes is ASCII with escapes, so that programs
in Java, which take such a file for ISO 8859-1, read the same.

Pure: text in, text out. Which keys exist and what they mean is `rmq.settings.schema`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.model.java import utf16_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANKS: Final = " \t\f"
_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_MEMBER: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+(?:[=:][ \t\f]*+)?+(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BAD_ESCAPE: Final = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*+\\u", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WRITTEN_ESCAPE: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


@dataclass(frozen=True, slots=True)
class Member:
    """One key with its value, and where it stands."""

    line: int
    """Number of its first line, counted from 1."""
    key: str
    value: str
    problem: str | None = None
    """Why Java could not read the line; then `key` and `value` mean nothing."""


def read_members(text: str) -> Iterator[Member]:
    """Yield what `text` holds, line by line; of several members for a key the last counts."""
    for entry in _logical_lines(text):
        yield _member_of(entry)


def format_member(key: str, value: str) -> str:
    """Write one line, without its end, that reads back as `key` and `value`."""
    return f"{_escaped(key, '=: #!')}={_escaped(value)}"


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """Return `text` so that it gives every key of `changes` its value; the rest stays as it is."""
    lines = _split(text)
    counting: dict[str, tuple[_LogicalLine, str]] = {}
    open_end = False
    for entry in _logical_lines(text):
        open_end = entry.open_end
        member = _member_of(entry)
        if member.problem is None and member.key in changes:
            counting[member.key] = entry, member.value
    # The last one: a "\n" behind a "\r" would not be a line end of its own.
    line_end = next((end for _, end in reversed(lines) if end), "\n")
    for key, (entry, value) in counting.items():
        if value != changes[key]:
            last = entry.first + entry.count - 1
            start = _start_of(lines[entry.first][0], changes[key], key)
            end = lines[last][1]
            lines[entry.first : last + 1] = [
                (start, end),
                # Numbers of the lines that follow stay right: these vanish when joined.
                *[("", "")] * (entry.count - 1),
            ]
            if last == len(lines) - 1:
                open_end = False
    added = [format_member(key, value) for key, value in changes.items() if key not in counting]
    result = "".join(content + end for content, end in lines)
    if not added:
        return result
    if result and result[-1] not in "\r\n":
        result += line_end
    if open_end:
        # Otherwise the first line we add would continue the member before it.
        result += line_end
    return result + "".join(line + line_end for line in added)


@dataclass(frozen=True, slots=True)
class _LogicalLine:
    first: int
    """Index of its first line, counted from 0."""
    count: int
    content: str
    open_end: bool
    """The text ended where another line should have continued this one."""


def _split(text: str) -> list[tuple[str, str]]:
    """Return the lines, each with its content and its end; nothing for the place after the last."""
    return [(line[1], line[2]) for line in _LINE.finditer(text) if line[0]]


def _logical_lines(text: str) -> Iterator[_LogicalLine]:
    """Yield lines that hold a member, continued ones joined."""
    parts: list[str] = []
    first = 0
    for number, (line, _) in enumerate(_split(text)):
        content = line.lstrip(_BLANKS)
        if not parts:
            if not content or content[0] in "#!":
                continue
            first = number
        if _is_continued(content):
            parts.append(content[:-1])
            continue
        parts.append(content)
        yield _LogicalLine(first, len(parts), "".join(parts), open_end=False)
        parts = []
    if parts:
        yield _LogicalLine(first, len(parts), "".join(parts), open_end=True)


def _is_continued(content: str) -> bool:
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _member_of(entry: _LogicalLine) -> Member:
    number = entry.first + 1
    if _BAD_ESCAPE.match(entry.content):
        return Member(number, "", "", r"\u without four hexadecimal digits")
    member = _MEMBER.match(entry.content)
    assert member is not None, "_MEMBER also matches nothing"
    return Member(number, _unescaped(member[1]), _unescaped(member[2]))


def _start_of(line: str, value: str, key: str) -> str:
    """Rewrite the first line of a member with another value, key and separator as they were."""
    content = line.lstrip(_BLANKS)
    member = _MEMBER.match(content[:-1] if _is_continued(content) else content)
    assert member is not None, "_MEMBER also matches nothing"
    start = content[: member.start(2)]
    separator = start[member.end(1) :]
    if _unescaped(member[1]) != key or not separator or (separator.isspace() and value[:1] in "=:"):
        # The key itself went on in the next line, or what stands behind it is not enough.
        return format_member(key, value)
    return line[: len(line) - len(content)] + start + _escaped(value)


def _escaped(text: str, special: str = "") -> str:
    written: list[str] = []
    for unit in utf16_units(text):
        character = chr(unit)
        if character in _WRITTEN_ESCAPE:
            written.append(_WRITTEN_ESCAPE[character])
        elif character in special or (character == " " and not written):
            written.append("\\" + character)
        elif 0x20 <= unit < 0x7F:
            written.append(character)
        else:
            written.append(f"\\u{unit:04X}")
    return "".join(written)


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
