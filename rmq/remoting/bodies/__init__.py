"""Typed bodies of remoting commands, one class for every JSON body of RocketMQ 4.9.8 and of ours.

Classes have the names and members of their Java counterparts (those in `ha` have none), under
Python names for the members: `group_name` is `groupName` on the wire. `Body.decode` reads the bytes
of a command, `encode` writes them as a stock peer would.

Reading order: `base` (what all JSON bodies share), `reading` (how tolerantly they are read), then
the bodies by subject; `rmq.remoting.protocol` says which request has which. `batch`,
`properties_text` and the compressed form in `registration` are the bodies that are not JSON.
Nothing here does I/O or knows the time.

JSON bodies are exported here by being defined in the module of their subject: there is no list of
names. Of the modules with helpers beside them, the imports say what is exported.
"""

from rmq.remoting.bodies.base import Body as Body
from rmq.remoting.bodies.base import BodyError as BodyError
from rmq.remoting.bodies.batch import BatchError as BatchError
from rmq.remoting.bodies.batch import BatchMessage as BatchMessage
from rmq.remoting.bodies.batch import decode_batch as decode_batch
from rmq.remoting.bodies.batch import decode_batch_in_steps as decode_batch_in_steps
from rmq.remoting.bodies.batch import encode_batch as encode_batch
from rmq.remoting.bodies.connections import *
from rmq.remoting.bodies.consume_queue import *
from rmq.remoting.bodies.groups import *
from rmq.remoting.bodies.ha import *
from rmq.remoting.bodies.heartbeat import *
from rmq.remoting.bodies.kv import *
from rmq.remoting.bodies.locks import *
from rmq.remoting.bodies.offsets import *
from rmq.remoting.bodies.properties_text import format_properties as format_properties
from rmq.remoting.bodies.properties_text import parse_properties as parse_properties
from rmq.remoting.bodies.registration import DECOMPRESSED_BYTES_MAX as DECOMPRESSED_BYTES_MAX
from rmq.remoting.bodies.registration import RegisterBrokerBody as RegisterBrokerBody
from rmq.remoting.bodies.registration import body_crc32 as body_crc32
from rmq.remoting.bodies.routes import *
from rmq.remoting.bodies.running_info import *
from rmq.remoting.bodies.stats import *
from rmq.remoting.bodies.subscriptions import *
from rmq.remoting.bodies.topics import *
