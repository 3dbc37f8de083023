"""Messages for histories: drawn as short sketches, so that a failing history can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from rmq.model import flags
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, pack_host
from rmq.model.record_layout import MESSAGE_MAGIC

QUEUES: Final = (("a", 0), ("a", 1), ("b", 0), ("SCHEDULE_TOPIC_XXXX", 2))
SHARED_KEYS: Final = ("Aa", "BB", "k")
"""Keys that many messages carry. Java's hash of the first two is the same."""
TAGS: Final = ("", "red", "Aa", "BB")

_FILLERS: Final = (b"\0", MESSAGE_MAGIC.to_bytes(4, signed=True), b"body")
_KINDS: Final = (
    flags.TRANSACTION_NONE,
    flags.TRANSACTION_NONE,
    flags.TRANSACTION_NONE,
    flags.TRANSACTION_PREPARED,
    flags.TRANSACTION_COMMIT,
    flags.TRANSACTION_ROLLBACK,
)
_HOST_V4: Final = pack_host("10.0.0.9", 40000)
_HOST_V6: Final = pack_host("2001:db8::9", 40000)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What matters of a message; the rest follows from its number."""

    queue: int = 0
    """Place in `QUEUES`."""
    body: int = 20
    """Length of the body."""
    look: int = 0
    """Filler of the body, tag, kind and hosts in one number."""
    keys: int = 0
    """How many keys it has of its own, and, four times as many, which of the shared ones."""

    def message(self, number: int) -> NewMessage:
        topic, queue_id = QUEUES[self.queue]
        look, filler = divmod(self.look, len(_FILLERS))
        look, tag = divmod(look, len(TAGS))
        is_v6, kind = divmod(look, len(_KINDS))
        shared, own = divmod(self.keys, 4)
        names = [f"n{number}.{place}" for place in range(own)]
        names += [key for place, key in enumerate(SHARED_KEYS) if shared >> place & 1]
        properties = {
            "UNIQ_KEY": names[0] if own else "",
            "TAGS": TAGS[tag],
            "KEYS": " ".join(names[1:] if own else names),
            "DELAY": str(number % 20) if number % 3 else "",
            "n": str(number),
        }
        return NewMessage(
            topic,
            queue_id,
            _body(number, self.body, _FILLERS[filler]),
            encode_properties(properties),
            flag=number,
            sys_flag=_KINDS[kind] | (flags.COMPRESSED if number % 5 == 0 else 0),
            born_ms=number * 1000,
            born_host=_HOST_V6 if is_v6 else _HOST_V4,
            reconsume_times=number % 7,
            prepared_offset=number * 3,
        )


_LOOKS: Final = len(_FILLERS) * len(TAGS) * len(_KINDS) * 2
_KEYS: Final = 4 << len(SHARED_KEYS)
_BODIES: Final = (*range(60), *range(60, 1200, 23))


def _body(number: int, length: int, filler: bytes) -> bytes:
    start = b"%d:" % number
    return (start + filler * (length // len(filler) + 1))[:length]


def sketch(number: int) -> Sketch:
    """Return one of all sketches; those with longer bodies have higher numbers."""
    number, queue = divmod(number, len(QUEUES))
    number, look = divmod(number, _LOOKS)
    body, keys = divmod(number, _KEYS)
    return Sketch(queue, _BODIES[body], look, keys)


def sketches(body_max: int) -> st.SearchStrategy[Sketch]:
    """Draw sketches, each as one number: drawing takes longer than most steps."""
    bodies = sum(body <= body_max for body in _BODIES)
    return st.integers(0, bodies * _KEYS * _LOOKS * len(QUEUES) - 1).map(sketch)
