"""Limits of numbers that records, requests and files hold, as RocketMQ has them."""

from __future__ import annotations

from typing import Final

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

QUEUE_ID_MAX: Final = INT32_MAX
QUEUES_MAX: Final = 65_536
"""Queues of a topic on one broker: each is a directory and some memory. Further ones in a route are
ignored.
"""
