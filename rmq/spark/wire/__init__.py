"""The format `rocketmq`: topics as tables and streams, read over the wire.

    positions    places in queues, as Spark stores them and people write them
    data_loss    what is missing, and the error for it
    planning which part of which queue is read by which task
    places       where a query starts and ends
    choice       which queues it reads
    settings     the options
    time_search  the first message of a time

know no Spark and send no requests. On the driver `cluster` asks brokers, and `batch` and `stream`
answer Spark; in the tasks `reading` reads. Both borrow open connections from `clients`. `source` is
what Spark calls, `progress` what the author of a query may call when it has ended.
"""
