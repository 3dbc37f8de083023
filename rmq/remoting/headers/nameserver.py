"""Headers of the nameserver: brokers that come and go, routes, permissions, key-value settings."""

from rmq.remoting.header import Header, Int32, Int64


class PutKvConfigRequest(Header, frozen=True, kw_only=True):
    """100 PUT_KV_CONFIG: set one value of a namespace."""

    namespace: str
    key: str
    value: str
    # Ours, of in-sync records: epoch and version of the one that the writer found there, "0.0" for
    # none. If it is another one by now, the value is not taken. Stock nameservers ignore it.
    instead_of: str | None = None


class GetKvConfigRequest(Header, frozen=True, kw_only=True):
    """101 GET_KV_CONFIG: read one value of a namespace."""

    namespace: str
    key: str


class GetKvConfigResponse(Header, frozen=True, kw_only=True):
    """Answer to 101 GET_KV_CONFIG."""

    value: str | None = None


class DeleteKvConfigRequest(Header, frozen=True, kw_only=True):
    """102 DELETE_KV_CONFIG: remove one value of a namespace."""

    namespace: str
    key: str


class GetKvListByNamespaceRequest(Header, frozen=True, kw_only=True):
    """219 GET_KVLIST_BY_NAMESPACE: all values of a namespace."""

    namespace: str


class RegisterBrokerRequest(Header, frozen=True, kw_only=True):
    """103 REGISTER_BROKER: a broker is alive and has these topics."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    # 0 for the master.
    broker_id: Int64
    compressed: bool = False
    # CRC-32 of the body in 31 bits; 0 means not checked.
    body_crc32: Int32 = 0
    # Of our own brokers: counts the masters of a broker name. Stock ones say nothing, which is 0.
    epoch: Int64 | None = None


class RegisterBrokerResponse(Header, frozen=True, kw_only=True):
    """Answer to 103 REGISTER_BROKER: the master's addresses, for a slave that has one."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    # Of our own nameservers: the highest epoch of a master of this broker name, if there was one.
    epoch: Int64 | None = None


class UnregisterBrokerRequest(Header, frozen=True, kw_only=True):
    """104 UNREGISTER_BROKER: a broker shuts down."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequest(Header, frozen=True, kw_only=True):
    """322 QUERY_DATA_VERSION: has anything changed since the version in the body?

    Java marks all four as mandatory; nameservers read `broker_addr` only.
    """

    broker_name: str | None = None
    broker_addr: str
    cluster_name: str | None = None
    broker_id: Int64 | None = None


class QueryDataVersionResponse(Header, frozen=True, kw_only=True):
    """Answer to 322 QUERY_DATA_VERSION."""

    changed: bool


class GetRouteInfoRequest(Header, frozen=True, kw_only=True):
    """105 GET_ROUTEINFO_BY_TOPIC: which brokers have a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


class WipeWritePermOfBrokerRequest(Header, frozen=True, kw_only=True):
    """205 WIPE_WRITE_PERM_OF_BROKER: no new messages to this broker."""

    broker_name: str


class WipeWritePermOfBrokerResponse(Header, frozen=True, kw_only=True):
    """Answer to 205 WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequest(Header, frozen=True, kw_only=True):
    """327 ADD_WRITE_PERM_OF_BROKER: messages to this broker again."""

    broker_name: str


class AddWritePermOfBrokerResponse(Header, frozen=True, kw_only=True):
    """Answer to 327 ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class DeleteTopicFromNamesrvRequest(Header, frozen=True, kw_only=True):
    """216 DELETE_TOPIC_IN_NAMESRV: forget the route of a topic."""

    topic: str
    # Everywhere when absent or empty.
    cluster_name: str | None = None


class GetTopicsByClusterRequest(Header, frozen=True, kw_only=True):
    """224 GET_TOPICS_BY_CLUSTER: the topics of a cluster."""

    cluster: str
