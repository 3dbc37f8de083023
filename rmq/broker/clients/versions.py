"""What a client can do, by the version it states: gates of the broker's requests to clients.

A version is an ordinal of RocketMQ 4.9.8 MQVersion. Names are needed only to report that a client
is too old, so only those below the highest gate are known.
"""

from __future__ import annotations

from typing import Final

RESETS_OFFSETS: Final = 28
"""V3_0_7_SNAPSHOT: takes RESET_CONSUMER_CLIENT_OFFSET and GET_CONSUMER_STATUS_FROM_CLIENT."""

TELLS_RUNNING_INFO: Final = 62
"""V3_1_8_SNAPSHOT: takes GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY."""

_FIRST_NAMES: Final = tuple(
    f"V3_0_0_{stage}"
    for stage in (
        "SNAPSHOT",
        "ALPHA1",
        "BETA1",
        "BETA2",
        "BETA3",
        "BETA4",
        "BETA5",
        "BETA6_SNAPSHOT",
        "BETA6",
        "BETA7_SNAPSHOT",
        "BETA7",
        "BETA8_SNAPSHOT",
        "BETA8",
        "BETA9_SNAPSHOT",
        "BETA9",
        "FINAL",
    )
)
_NAMES: Final = _FIRST_NAMES + tuple(
    f"V3_{minor}_{patch}{suffix}"
    for minor, patches in ((0, range(1, 16)), (1, range(8)))
    for patch in patches
    for suffix in ("_SNAPSHOT", "")
)


_LATER_NAMES: Final = tuple(
    f"V{major}_{minor}_{patch}{suffix}"
    for major, minor, first in (
        (3, 1, 8),
        (3, 2, 0),
        *((3, minor, 1) for minor in range(3, 10)),
        *((major, minor, 0) for major in (4, 5) for minor in range(10)),
    )
    for patch in range(first, 10)
    for suffix in ("_SNAPSHOT", "")
)
"""Those from the highest gate on: 3.3 to 3.9 begin with 1, all others with 0."""
_ALL_NAMES: Final = _NAMES + _LATER_NAMES
UNKNOWN_VERSION: Final = "other"


def version_name(version: int) -> str:
    """Return the name of a version below the gates; the number where there is no name."""
    return _NAMES[version] if 0 <= version < len(_NAMES) else str(version)


def version_label(version: int) -> str:
    """Return the name of any version, one word for those that 4.9.8 does not know."""
    return _ALL_NAMES[version] if 0 <= version < len(_ALL_NAMES) else UNKNOWN_VERSION
