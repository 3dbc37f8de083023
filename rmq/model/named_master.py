"""How a broker that is not the master names the master when it refuses a message.

The answer (code 14, SERVICE_NOT_AVAILABLE) has a header field of ours beside those of RocketMQ
4.9.8. Stock clients read only code and remark of such an answer, and ignore fields that they do
not know.
"""

from __future__ import annotations

from typing import Final

MASTER_FIELD: Final = "masterAddr"
"""The address of the master, `host:port`; absent if the broker knows none."""
