"""delayOffset.json: how far each delay level was delivered, and what that rests on. Pure.

To the table of RocketMQ 4.9.8 comes one member of our own, `trail`, which stock brokers ignore.
"""

import logging

import msgspec

from rmq.broker.tables.progress_trail import ProgressTrail
from rmq.model import fastjson
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import DelayOffsetSerializeWrapper
from rmq.remoting.header import Int32, Int64

logger = logging.getLogger(__name__)


class SavedDelays(DelayOffsetSerializeWrapper, frozen=True, kw_only=True):
    """What the file says."""

    trail: dict[Int64, dict[Int32, Int64]] = msgspec.field(default_factory=dict)
    """How far levels had come when the log ended at a place (`rmq.broker.tables.progress_trail`).
    """

    def text(self) -> str:
        """Return it as a stock broker would write it, if there is nothing of our own."""
        body = self if self.trail else DelayOffsetSerializeWrapper(offset_table=self.offset_table)
        return fastjson.pretty(body).decode()


def progress_after_cut(text: str, log_end: PhysicalOffset) -> str | None:
    """Return what the file is to say when the log was cut at `log_end`; None: what it says.

    Messages whose deliveries are gone are delivered again. Raises `BodyError` or
    `MalformedJsonError`.
    """
    saved = SavedDelays.decode(text.encode())
    trail = ProgressTrail()
    trail.load(saved.trail)
    left = trail.cut(log_end)
    if left is None:
        return None
    for level, offset in saved.offset_table.items():
        if left.get(level, 0) < offset:
            logger.warning(
                "delay level %d goes back from %d to %d: the log was cut",
                level,
                offset,
                left.get(level, 0),
            )
    return SavedDelays(offset_table=dict(left), trail=trail.table()).text()
