"""Spark finds the format `rocketmq` here by itself, wherever rmq is installed."""

from rmq.spark.wire.source import RocketmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
