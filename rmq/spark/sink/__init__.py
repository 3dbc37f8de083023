"""Tables to messages: the writing side of the format `rocketmq`.

    columns     which columns of a table are written, and as what
    settings    the options of a write
    identity    the key and the message id of every row, the same whenever it is sent
    arrays      Arrow's arrays as numpy sees them
    sharding    queues of many sharding keys at once
    grouping    rows in the order of where they go
    properties  the properties of many rows as text
    encoding    Arrow batches to batches of messages, ready to be sent
    rate        a limit of messages per second
    patience    which failed sends are offered again, and when
    sending batches in flight, and their outcomes
    pool        the connections of a worker process
    writer      what Spark calls

Everything above `sending` is pure: no Spark, no sockets, no clock. Delivery is at least once. A
task that fails is run again by Spark and sends its rows again, with the same ids.
"""
