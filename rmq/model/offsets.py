"""The kinds of offset, each its own type, so that mixing two of them up does not pass the checker.

At run time they are plain integers and cost nothing.
"""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte address in the whole CommitLog, across its segments."""

QueueOffset = NewType("QueueOffset", int)
"""The ordinal of an entry in its ConsumeQueue; the first message of a queue has 0."""
