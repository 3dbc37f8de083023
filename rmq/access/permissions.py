"""Permissions on topics and groups: the words of `plain_acl.yml` and what they allow. Pure.

A group is known by the name of its retry topic, so a resource is always the name of a topic.

Words, numbers and refusals are those of RocketMQ 4.9.8. A word it does not know it reads as DENY;
here `permission_of` refuses it, so that a misspelt file is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

DENY: Final = 1
ANY: Final = 2
"""Only ever needed, never granted: PUB or SUB, whichever is there."""
PUB: Final = 4
SUB: Final = 8

_WORDS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


def is_enough(needed: int, owned: int) -> bool:
    """Return whether a permission allows what is needed."""
    if owned & DENY:
        return False
    if needed & ANY:
        return bool(owned & (PUB | SUB))
    return bool(needed & owned)


def permission_of(word: str | None) -> int:
    """Return what a word means, DENY for none; raise ValueError for a word that is not known."""
    if word is None or not word.strip():
        return DENY
    try:
        return _WORDS[word.strip()]
    except KeyError:
        known = ", ".join(_WORDS)
        raise ValueError(f"{word.strip()!r} is not one of {known}") from None


def resource_of(text: str) -> tuple[str, int]:
    """Return name and permission of `name=PERM`; raise ValueError."""
    name, word = _parts(text)
    return name, permission_of(word)


def checked_resources(texts: Iterable[str]) -> list[str]:
    """Return what a request wants to grant; raise ValueError as a stock broker would answer."""
    texts = list(texts)
    for text in texts:
        try:
            _, word = _parts(text)
        except ValueError:
            raise ValueError(
                f"Parse Resource format error for {text}.\nThe expected resource format is"
                " 'Res=Perm'. For example: topicA=SUB"
            ) from None
        if word not in _WORDS:
            raise ValueError(
                f"Parse resource permission error for {text}.\nThe expected permissions are 'SUB'"
                " or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
    return texts


def _parts(text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("=") if part]
    if len(parts) != 2 or not parts[0]:
        raise ValueError(f"{text!r} is not of the form name=PERM")
    return parts[0], parts[1]


def shown_resource(resource: str) -> str:
    """Return a resource as refusals name it."""
    if resource.startswith(RETRY_PREFIX):
        return f"group:{resource.removeprefix(RETRY_PREFIX)}"
    return f"topic:{resource}"
