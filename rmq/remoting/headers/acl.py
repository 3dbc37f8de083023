"""Headers that change or show access control at a broker.

The fields that sign a request (AccessKey, SecurityToken, Signature) are not here: they ride on any
request beside its own header.
"""

from rmq.remoting.header import Header


class CreateAccessConfigRequest(Header, frozen=True, kw_only=True):
    """50 UPDATE_AND_CREATE_ACL_CONFIG: create an account or change it."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    # Comma-separated `name=PERM`.
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequest(Header, frozen=True, kw_only=True):
    """51 DELETE_ACL_CONFIG: delete an account."""

    access_key: str


class GetBrokerAclConfigResponse(Header, frozen=True, kw_only=True):
    """Answer to 52 GET_BROKER_CLUSTER_ACL_INFO."""

    # A DataVersion as JSON text.
    version: str
    # JSON text: a DataVersion for every file.
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class UpdateGlobalWhiteAddrsConfigRequest(Header, frozen=True, kw_only=True):
    """53 UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: addresses that need no account."""

    # Comma-separated.
    global_white_addrs: str
    # Marked mandatory in Java, but brokers take their default file when it is absent or empty.
    acl_file_full_path: str | None = None
