"""Which names topics, groups and clients may have. Pure.

The rules, and the words for breaking them, are those of RocketMQ 4.9.8: TopicValidator in its
broker, Validators in its client. Nothing is made of a name that breaks them: no settings, topics,
offsets, locks or files. Stock clients check their groups when they start, and a broker checks the
topic of each send, so no stock client comes to have such a name.

`|` and `%` are legal, `.` and `@` are not. Lengths are counted in characters.
"""

from __future__ import annotations

import re
from typing import Final

from rmq.model.names import RETRY_PREFIX

TOPIC_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 255
SUBSCRIBED_CHARS_MAX: Final = len(RETRY_PREFIX) + GROUP_CHARS_MAX
"""The longest topic that a group can subscribe to: its own retry topic."""
CLIENT_ID_CHARS_MAX: Final = 1024
"""Stock clients make theirs of an address, a process id and names that applications choose; 4.9.8
takes any length.
"""

LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""What a whole name has to match, apart from its length."""

_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]")
# Java does not take four of Python's spaces for blanks.
_BLANK: Final = re.compile(r"[^\S\x85\xa0\u2007\u202f]*")


def topic_refusal(topic: str) -> str | None:
    """Return why a topic may not have this name, as the remark of the refusal; None if it may."""
    if len(topic) <= TOPIC_CHARS_MAX and LEGAL.fullmatch(topic):
        return None
    if _BLANK.fullmatch(topic):
        return "The specified topic is blank."
    if _ILLEGAL.search(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return "The specified topic is longer than topic max length."


def group_refusal(group: str) -> str | None:
    """Return why a group may not have this name, as the remark of the refusal; None if it may.

    4.9.8 refuses such names in its clients only, and creates the group for any other client.
    """
    if len(group) > GROUP_CHARS_MAX:
        return f"the specified group is longer than group max length {GROUP_CHARS_MAX}."
    if LEGAL.fullmatch(group):
        return None
    if _BLANK.fullmatch(group):
        return "the specified group is blank"
    return (
        f"the specified group[{group}] contains illegal characters,"
        " allowing only ^[%|a-zA-Z0-9_-]+$"
    )


def is_subscribable(topic: str) -> bool:
    """Tell whether a group may subscribe to a topic of this name."""
    return len(topic) <= SUBSCRIBED_CHARS_MAX and LEGAL.fullmatch(topic) is not None


def client_id_refusal(client_id: str) -> str | None:
    """Return why a client may not have this id, as the remark of the refusal; None if it may."""
    if len(client_id) <= CLIENT_ID_CHARS_MAX:
        return None
    return f"a client id of {len(client_id)} characters is above the limit of {CLIENT_ID_CHARS_MAX}"
