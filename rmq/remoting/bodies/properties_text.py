r"""Settings as text, `key=value` by line: bodies of the config requests 25, 26, 318 and 319.

Reading follows `java.util.Properties` (`rmq.settings.properties_file`). The last of several lines
for a key counts.

Writing follows RocketMQ 4.9.8 MixAll, which escapes nothing: a value with a backslash reads back
without it. What would read back as other keys is refused.

Text is UTF-8 in both directions. Java reads it as ISO 8859-1 although it writes UTF-8, and so gets
values beyond ASCII wrong; there is no use in doing the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import LocalProtocolError
from rmq.remoting.bodies.base import BodyError
from rmq.settings.properties_file import read_members

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_MAX: Final = 64 * 1024
"""How long a text may be; all settings of a broker together need some 12 KiB. It is read at once,
by servers in their loop.
"""
LINES_MAX: Final = 1_000
"""How many lines it may have, which is what reading it takes time for: 8 us each."""


def parse_properties(data: bytes | None) -> dict[str, str]:
    """Read settings, in the order they are given; raise `BodyError` with the number of the line."""
    if data is not None and len(data) > BYTES_MAX:
        raise BodyError(f"{len(data)} bytes, above {BYTES_MAX}", body="properties", path="$")
    lines = 0 if data is None else data.count(b"\n") + data.count(b"\r")
    if lines > LINES_MAX:
        raise BodyError(f"{lines} lines, above {LINES_MAX}", body="properties", path="$")
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError as exc:
        raise BodyError("is not UTF-8", body="properties", path=f"byte {exc.start}") from None
    properties: dict[str, str] = {}
    for member in read_members(text):
        if member.problem is not None:
            raise BodyError(member.problem, body="properties", path=f"line {member.line}")
        properties[member.key] = member.value
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
