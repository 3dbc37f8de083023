"""One typed header class for every request and response of RocketMQ 4.9.8, and of our own.

A class has the fields of its Java counterpart, in the order of the Java class unless a comment
says why not, under Python names: `consumer_group` is `consumerGroup` on the wire. Where the wire is
cryptic the name is not (`broker_name` for `bname`, words for the letters of the second send
request). Types are real ones; `Int32` and `Int64` refuse what a Java `int` and `long` cannot hold.
Fields of ours in a stock header come last, and are not sent where they say nothing.

A field without a default is one that Java marks as mandatory (`@CFNotNull`). Java only logs that
one is missing and mostly fails later; here reading the header fails and names the field. Fields
that the receiving side of 4.9.8 never reads, or checks for null, are optional here whatever their
mark, and Java primitives that may be left out have Java's defaults.

`rmq.remoting.protocol` says which class belongs to which request code. Bodies are not here, nor is
any knowledge of what a broker does with a field.

A class is exported here by being defined in the module of its subject: there is no list of names.
"""

from rmq.remoting.header import EmptyHeader as EmptyHeader
from rmq.remoting.headers.acl import *
from rmq.remoting.headers.broker_admin import *
from rmq.remoting.headers.callbacks import *
from rmq.remoting.headers.clients import *
from rmq.remoting.headers.groups import *
from rmq.remoting.headers.ha import *
from rmq.remoting.headers.nameserver import *
from rmq.remoting.headers.offsets import *
from rmq.remoting.headers.pull import *
from rmq.remoting.headers.queries import *
from rmq.remoting.headers.send import *
from rmq.remoting.headers.topics import *
from rmq.remoting.headers.transactions import *
