"""The settings of a broker: RocketMQ's own `broker.conf`, typed and checked.

Reading order: `config_service`, `config_running`, `config_replication` and `config_store` (which
settings there are), `config_schema` (all of them together), `config_loading` (from a file to a
`BrokerConfig`), `config_live` (changes while the broker runs). What other parts of the broker need
is here.
"""

from rmq.broker.config_live import LiveConfig, UpdateOutcome
from rmq.broker.config_loading import LoadedConfig, load_broker_config
from rmq.broker.config_service import BrokerRole
from rmq.broker.config_values import BrokerConfig

__all__ = [
    "BrokerConfig",
    "BrokerRole",
    "LiveConfig",
    "LoadedConfig",
    "UpdateOutcome",
    "load_broker_config",
]
