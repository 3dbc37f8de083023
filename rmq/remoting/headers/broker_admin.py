"""Headers about a broker itself: settings and statistics. Most such requests have bodies only."""

from rmq.remoting.header import Header


class GetBrokerConfigResponse(Header, frozen=True, kw_only=True):
    """Answer to 26 GET_BROKER_CONFIG; the settings are in the body."""

    # A DataVersion as JSON text.
    version: str


class ViewBrokerStatsDataRequest(Header, frozen=True, kw_only=True):
    """315 VIEW_BROKER_STATS_DATA: one statistic over the last minute, hour and day."""

    # TOPIC_PUT_NUMS, GROUP_GET_NUMS and the like.
    stats_name: str
    # A topic, `topic@group`, `topic@queueId` or a cluster name, depending on the statistic.
    stats_key: str
