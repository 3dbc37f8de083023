"""The settings of a broker: RocketMQ's own `broker.conf`, typed and checked.

Reading order: `service`, `operation`, `replication` and `store` (which
settings there are), `schema` (all of them together), `loading` (from a file to a
`BrokerConfig`), `live` (changes while the broker runs). What other parts of the broker need
is here.
"""

from rmq.broker.config.live import LiveConfig, UpdateOutcome
from rmq.broker.config.loading import LoadedConfig, load_broker_config
from rmq.broker.config.service import BrokerRole
from rmq.broker.config.values import BrokerConfig

__all__ = [
    "BrokerConfig",
    "BrokerRole",
    "LiveConfig",
    "LoadedConfig",
    "UpdateOutcome",
    "load_broker_config",
]
