"""Topics and stores as tables of Apache Spark, and the pipelines that are built on them.

    import rmq.spark

    spark = rmq.spark.open_session("orders")
    orders = spark.read.format("rocketmq").options(nameservers="10.0.0.5:9876", subscribe="Orders")
    print(orders.load().count())

In a session of your own, `rmq.spark.register(spark)` makes both formats known: `rocketmq` reads
and writes topics over the wire, `rocketmq-store` reads the CommitLog of a store directory.

Everything here needs the extra `rmq[spark]`. Reading order: `schema` and `options` (the columns of
a table and its options), `decoding` (stored records to Arrow, no Spark), `files` and `wire` (the
two sources), `sink`, then `pipelines` (the commands), `jobs` (what they do) and `pages`.
"""

from rmq.spark.session import open_session, register

__all__ = ["open_session", "register"]
