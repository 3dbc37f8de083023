"""A nameserver with access control: registration needs admin rights, routes an account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError
from rmq.nameserver.server import open_access, serve_nameserver
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetRouteInfoRequest, PutKvConfigRequest
from tests.access.access_kit import ACL, ADMIN, FORGER, USER, access_in, signed_frame
from tests.nameserver.kit import (
    ask_route,
    config_for,
    register,
    register_body,
    register_header,
    running,
    saying,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.signing import Credentials

SAYS = "org.apache.rocketmq.acl.common.AclException: "


def registration(credentials: Credentials | None, address: str) -> bytes:
    said = saying(address=address, topics=["Orders"])
    body = register_body(said).encode()
    return signed_frame(credentials, RequestCode.REGISTER_BROKER, register_header(said), body)


async def test_only_an_administrator_registers_a_broker_and_only_accounts_see_it(
    tmp_path: Path,
) -> None:
    config = config_for(tmp_path, aclEnable="true")
    route = GetRouteInfoRequest(topic="Orders")
    async with running(config, access_in(tmp_path)) as served:
        peer = served.attach("192.0.2.7:1")
        for credentials in (None, FORGER, USER):
            answer = await peer.request(registration(credentials, "10.0.0.66:10911"))
            assert answer.code == 1
            assert (answer.remark or "").startswith(SAYS)
        assert (await peer.request(registration(ADMIN, "10.0.0.1:10911"))).code == 0
        assert (await ask_route(peer, "Orders")).code == 1
        asked = signed_frame(USER, RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
        answer = await peer.request(asked)
        assert answer.code == 0
        assert b"10.0.0.1:10911" in answer.body
        put = PutKvConfigRequest(namespace="n", key="k", value="v")
        answer = await peer.request(signed_frame(USER, RequestCode.PUT_KV_CONFIG, put))
        assert answer.remark == (
            f"{SAYS}Need admin permission for request code=100, but accessKey=the-user is not"
        )
        assert (await peer.request(signed_frame(ADMIN, RequestCode.PUT_KV_CONFIG, put))).code == 0


async def test_a_stock_broker_registers_from_a_white_list(tmp_path: Path) -> None:
    config = config_for(tmp_path, aclEnable="true")
    async with running(config, access_in(tmp_path)) as served:
        assert (await register(served.attach("10.10.103.5:1"), saying())).code == 0
        assert (await register(served.attach("10.10.104.5:1"), saying())).code == 1


async def test_a_nameserver_reads_the_file_beside_its_settings(tmp_path: Path) -> None:
    config = config_for(tmp_path, aclEnable="true")
    with pytest.raises(ConfigError, match=f"{tmp_path}/plain_acl.yml does not exist"):
        await serve_nameserver(config)
    (tmp_path / "plain_acl.yml").write_text("accounts: {}")
    with pytest.raises(ConfigError, match=r"plain_acl.yml: accounts: is not a list"):
        await serve_nameserver(config)
    (tmp_path / "plain_acl.yml").write_text(ACL)
    assert "the-admin" in open_access(config)._loaded.rules.accounts
