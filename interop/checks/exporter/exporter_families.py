"""The families of the stock rocketmq-exporter, and which of them can have samples."""

from __future__ import annotations

from typing import Final

PUT_TIME_CLASSES: Final = tuple(
    f"rocketmq_brokeruntime_pmdt_{ending}"
    for ending in (
        *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
        *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
    )
)
"""Messages stored in the last whole minute, by how long it took."""

BROKER_RUNTIME: Final = (
    *PUT_TIME_CLASSES,
    *(
        f"rocketmq_brokeruntime_{ending}"
        for ending in (
            *("msg_put_total_today_now", "msg_gettotal_today_now"),
            *("msg_puttotal_todaymorning", "msg_gettotal_todaymorning"),
            *("msg_puttotal_yesterdaymorning", "msg_gettotal_yesterdaymorning"),
            *("dispatch_behind_bytes", "dispatch_maxbuffer"),
            *("put_message_size_total", "put_message_average_size", "putmessage_times_total"),
            *("putmessage_entire_time_max", "getmessage_entire_time_max"),
            *("put_latency_99", "put_latency_999", "pagecache_lock_time_mills"),
            *("remain_transientstore_buffer_numbs", "remain_howmanydata_toflush"),
            *("earliest_message_timestamp", "start_accept_sendrequest_time"),
            *("commitlog_disk_ratio", "consumequeue_disk_ratio"),
            *("commitlogdir_capacity_free", "commitlogdir_capacity_total"),
            *("commitlog_minoffset", "commitlog_maxoffset"),
            *("send_threadpool_queue_size", "send_threadpoolqueue_capacity"),
            "send_threadpoolqueue_headwait_timemills",
            *("pull_threadpoolqueue_size", "pull_threadpoolqueue_capacity"),
            "pull_threadpoolqueue_headwait_timemills",
            *("query_threadpoolqueue_size", "query_threadpool_queue_capacity"),
            "query_threadpoolqueue_headwait_timemills",
        )
    ),
    *(
        f"rocketmq_brokeruntime_{rate}_tps{seconds}"
        for rate in ("put", "getfound", "getmiss", "gettotal", "gettransfered")
        for seconds in (10, 60, 600)
    ),
)
"""What it makes of the answer to GET_BROKER_RUNTIME_INFO."""

FILLED: Final = frozenset(
    (
        *BROKER_RUNTIME,
        *("rocketmq_broker_tps", "rocketmq_broker_qps", "rocketmq_broker_commitlog_diff"),
        *("rocketmq_producer_tps", "rocketmq_producer_message_size", "rocketmq_producer_offset"),
        *("rocketmq_topic_retry_offset", "rocketmq_topic_dlq_offset", "rocketmq_producer_count"),
        *("rocketmq_consumer_tps", "rocketmq_consumer_message_size", "rocketmq_consumer_offset"),
        *("rocketmq_send_back_nums", "rocketmq_group_get_latency_by_storetime"),
        *("rocketmq_group_diff", "rocketmq_group_retrydiff", "rocketmq_group_count"),
        *("rocketmq_client_consume_fail_msg_count", "rocketmq_client_consume_fail_msg_tps"),
        *("rocketmq_client_consume_ok_msg_tps", "rocketmq_client_consume_rt"),
        *("rocketmq_client_consumer_pull_rt", "rocketmq_client_consumer_pull_tps"),
    )
)
"""All that the exporter ever has samples of. It has three more families: it does not call what
would fill rocketmq_group_consume_tps and rocketmq_group_consume_total_offset, and it leaves dead
letter topics out before it comes to rocketmq_group_dlqdiff.
"""
