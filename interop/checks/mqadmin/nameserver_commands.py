"""Commands for the nameserver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from interop.checks.mqadmin.admin_session import DATA
from interop.support.cases import expect, expect_true
from interop.support.mqadmin import expect_in
from interop.support.printed import only, settings
from rmq.model import fastjson

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
READABLE, READABLE_AND_WRITABLE = 4, 6


async def run_nameserver_commands(session: AdminSession) -> None:
    await _config(session)
    await _key_values(session)
    await _write_permission(session)


async def _config(session: AdminSession) -> None:
    (nameserver,) = session.cluster.nameservers
    with session.operation("getNamesrvConfig", "settings of a nameserver"):
        output = await session.mqadmin("getNamesrvConfig")
        expect_in(f"============{nameserver.address}============", output)
        got = settings(output)
        expect("port", got.get("listenPort"), str(nameserver.port))
        expect("path", got.get("kvConfigPath"), str(nameserver.folder / "kvConfig.json"))
        expect("a default", got.get("orderMessageEnable"), "false")

    with session.operation("updateNamesrvConfig", "a setting that takes effect and is kept"):
        conf = f"{session.broker.name}:4"
        await session.mqadmin("updateOrderConf", "-t", DATA, "-m", "put", "-v", conf)
        expect("route before", await _order_in_route(session), None)
        output = await _set(session, "orderMessageEnable", "true")
        expect_in("orderMessageEnable : true", output)
        expect("route after", await _order_in_route(session), conf)
        kept = nameserver.config.read_text()
        expect_true(f"it in the file: {kept}", "orderMessageEnable=true" in kept.replace(" ", ""))
        await _set(session, "orderMessageEnable", "false")
        got = settings(await session.mqadmin("getNamesrvConfig"))
        expect("setting", got.get("orderMessageEnable"), "false")


async def _set(session: AdminSession, key: str, value: str) -> str:
    output = await session.mqadmin("updateNamesrvConfig", "-k", key, "-v", value)
    expect_in(f"update name server config success![{session.cluster.nameserver}]", output)
    return output


async def _order_in_route(session: AdminSession) -> object:
    output = await session.mqadmin("topicRoute", "-t", DATA)
    return cast("dict[str, Any]", fastjson.loads(output)).get("orderTopicConf")


async def _key_values(session: AdminSession) -> None:
    path = session.cluster.nameservers[0].folder / "kvConfig.json"

    def stored(namespace: str) -> dict[str, str]:
        table = json.loads(path.read_text())["configTable"]
        return cast("dict[str, str]", table.get(namespace, {}))

    with session.operation("updateKvConfig", "a value, kept in the file"):
        output = await session.mqadmin("updateKvConfig", "-s", "Interop", "-k", "key", "-v", "1")
        expect_in("create or update kv config to namespace success.", output)
        expect("file", stored("Interop"), {"key": "1"})
        await session.mqadmin("updateKvConfig", "-s", "Interop", "-k", "key", "-v", "größer")
        expect("file", stored("Interop"), {"key": "größer"})

    with session.operation("updateKvConfig", "the order of a topic, read by updateOrderConf"):
        await session.mqadmin("updateKvConfig", "-s", ORDER_NAMESPACE, "-k", "Queue", "-v", "b:1")
        output = await session.mqadmin("updateOrderConf", "-t", "Queue", "-m", "get")
        expect("value", only(r"orderConf=\[(.*?)\]", output), "b:1")

    with session.operation("deleteKvConfig", "a value"):
        output = await session.mqadmin("deleteKvConfig", "-s", ORDER_NAMESPACE, "-k", "Queue")
        expect_in("delete kv config from namespace success.", output)
        reason = await session.refused("updateOrderConf", "-t", "Queue", "-m", "get")
        expect_in("CODE: 22", reason)
        await session.mqadmin("deleteKvConfig", "-s", "Interop", "-k", "key")
        expect("file", stored("Interop"), {})


async def _write_permission(session: AdminSession) -> None:
    name, address = session.broker.name, session.cluster.nameserver
    with session.operation("wipeWritePerm", "all topics of a broker"):
        count = len(await session.topics())
        output = await session.mqadmin("wipeWritePerm", "-b", name)
        expect(
            "printed",
            output.strip(),
            f"wipe write perm of broker[{name}] in name server[{address}] OK, {count}",
        )
        expect("route", await session.route(DATA), (4, 4, READABLE))

    with session.operation("addWritePerm", "all topics of a broker"):
        output = await session.mqadmin("addWritePerm", "-b", name)
        expect(
            "printed",
            output.strip(),
            f"add write perm of broker[{name}] in name server[{address}] OK, {count}",
        )
        expect("route", await session.route(DATA), (4, 4, READABLE_AND_WRITABLE))
