"""Spark finds the format `rocketmq-store` here by itself, wherever rmq is installed."""

from rmq.spark.files.source import StoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
