"""rmq: a RocketMQ 4.9.8 compatible messaging system on trio.

Import from the packages below this one; this module holds only the names of the two versions that
belong together: ours, and that of the protocol we speak.
"""

__version__ = "0.1.0"

PROTOCOL_VERSION = "V4_9_8"
"""The release we speak on the wire, as RocketMQ 4.9.8 MQVersion spells it."""
