"""Headers about consumer groups at a broker: delete, and how far they are.

Creating a group has a body only; offsets themselves are in `offsets`.
"""

from rmq.remoting.header import Header


class DeleteSubscriptionGroupRequest(Header, frozen=True, kw_only=True):
    """207 DELETE_SUBSCRIPTIONGROUP: forget a group, and its offsets too if asked."""

    group_name: str
    remove_offset: bool = False


class GetConsumeStatsRequest(Header, frozen=True, kw_only=True):
    """208 GET_CONSUME_STATS: progress of one group in every queue."""

    consumer_group: str
    # All topics the group has offsets for when absent or blank.
    topic: str | None = None


class GetBrokerConsumeStatsRequest(Header, frozen=True, kw_only=True):
    """317 GET_BROKER_CONSUME_STATS: progress of every group of a broker."""

    # Only ordered topics.
    is_order: bool = False
