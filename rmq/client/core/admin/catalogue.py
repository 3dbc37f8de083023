"""Everything an admin tool can ask of nameservers and brokers: the calls of all subjects. Pure.

`rmq.client.tasks.admin` and `rmq.client.blocking.admin` inherit `AdminCalls`, so a flow that is
listed in the class of its module is a method of both. Reading order: `targets` (which brokers are
asked, and what happens if one does not answer), `calls` (how a flow becomes a method), then the
subjects.
"""

from __future__ import annotations

from rmq.client.core.admin.accounts import AccountCalls
from rmq.client.core.admin.brokers import BrokerCalls
from rmq.client.core.admin.clients import ClientCalls
from rmq.client.core.admin.groups import GroupCalls
from rmq.client.core.admin.messages import MessageCalls
from rmq.client.core.admin.nameservers import NameserverCalls
from rmq.client.core.admin.offsets import OffsetCalls
from rmq.client.core.admin.topics import TopicCalls
from rmq.client.core.admin.tracks import TrackCalls


class AdminCalls(
    TopicCalls,
    GroupCalls,
    OffsetCalls,
    MessageCalls,
    TrackCalls,
    ClientCalls,
    BrokerCalls,
    NameserverCalls,
    AccountCalls,
):
    """The methods of an admin client, each with the arguments and the result of its flow."""
