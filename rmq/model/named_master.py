"""How a broker that is no master says who is, when it refuses a message.

The answer (code 14, SERVICE_NOT_AVAILABLE) has a header field of ours beside those of RocketMQ
4.9.8. Stock clients look at code and remark of such an answer only, and ignore fields that they do
not know.
"""

from __future__ import annotations

from typing import Final

MASTER_FIELD: Final = "masterAddr"
"""The address of the master, `host:port`; absent if the broker knows none."""
