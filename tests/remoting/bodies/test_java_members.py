"""Our body classes against the members, types and defaults of the Java classes."""

from __future__ import annotations

from typing import Final, cast

import msgspec
import pytest
from msgspec import inspect

from rmq.model.queues import MessageQueue
from rmq.remoting import bodies
from tests.remoting.bodies.java_bodies import JAVA_BODIES, JAVA_ENUMS, JavaMember
from tests.remoting.bodies.strategies import BODY_CLASSES

CLASSES: Final[list[type[msgspec.Struct]]] = [
    MessageQueue,
    *(kind for kind in BODY_CLASSES if kind.__module__ != "rmq.remoting.bodies.ha"),
]
"""All but those of requests that only our servers know."""

DEMANDED: Final = {
    "BrokerData": {"brokerName"},
    "ConsumerData": {"groupName"},
    "HeartbeatData": {"clientID"},
    "LockBatchRequestBody": {"clientId", "consumerGroup"},
    "MessageQueue": {"brokerName", "queueId", "topic"},
    "MessageQueueForC": {"brokerName", "topic"},
    "OffsetMovedEvent": {"consumerGroup", "messageQueue"},
    "ProducerData": {"groupName"},
    "QueueData": {"brokerName"},
    "QueueTimeSpan": {"messageQueue"},
    "SubscriptionData": {"topic"},
    "SubscriptionGroupConfig": {"groupName"},
    "TopicConfig": {"topicName"},
    "UnlockBatchRequestBody": {"clientId", "consumerGroup"},
}
"""Members that must be there. Java leaves them null, and then fails or keeps a useless entry."""


def test_every_java_class_has_its_counterpart_and_no_other_exists() -> None:
    assert {kind.__name__ for kind in CLASSES} == JAVA_BODIES.keys()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_members_have_the_names_and_types_of_the_java_class(kind: type[msgspec.Struct]) -> None:
    ours = {field.encode_name: _java_type(field.type) for field in _fields(kind)}

    assert ours == {
        member.name: _without_sets_of_beans(member.type) for member in JAVA_BODIES[kind.__name__]
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_members_have_the_defaults_of_the_java_class(kind: type[msgspec.Struct]) -> None:
    java = {member.name: member for member in JAVA_BODIES[kind.__name__]}
    demanded = set()
    for field in _fields(kind):
        if field.required:
            demanded.add(field.encode_name)
        elif field.default_factory is not msgspec.NODEFAULT:
            assert field.default_factory() == _default(java[field.encode_name]), field.encode_name
        else:
            assert field.default == _default(java[field.encode_name]), field.encode_name

    assert demanded == DEMANDED.get(kind.__name__, set())


@pytest.mark.parametrize(("name", "members"), JAVA_ENUMS.items(), ids=JAVA_ENUMS)
def test_enums_have_the_members_of_the_java_enum_in_its_order(name: str, members: str) -> None:
    assert [member.name for member in getattr(bodies, name)] == members.split()


def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    return cast("inspect.StructType", inspect.type_info(kind)).fields


def _java_type(info: inspect.Type) -> str:
    match info:
        case inspect.StrType():
            return "String"
        case inspect.BoolType():
            return "boolean"
        case inspect.FloatType():
            return "double"
        case inspect.IntType(ge=int(low), le=int(high)) if (low, high) == (-(2**31), 2**31 - 1):
            return "int"
        case inspect.IntType(ge=int(low), le=int(high)) if (low, high) == (-(2**63), 2**63 - 1):
            return "long"
        case inspect.EnumType() | inspect.StructType():
            return info.cls.__name__
        case inspect.UnionType(types=(option, inspect.NoneType())):
            return _java_type(option)
        case inspect.DictType():
            return f"Map<{_java_type(info.key_type)},{_java_type(info.value_type)}>"
        case inspect.VarTupleType():
            return f"List<{_java_type(info.item_type)}>"
        case inspect.FrozenSetType():
            return f"Set<{_java_type(info.item_type)}>"
    raise TypeError(f"Java has no {info!r}")


def _without_sets_of_beans(java_type: str) -> str:
    """Sets of beans are tuples here, because their order on the wire is worth keeping."""
    item = java_type.removeprefix("Set<").removesuffix(">")
    return f"List<{item}>" if java_type != item and item in JAVA_BODIES else java_type


def _default(member: JavaMember) -> object:
    container, _, _ = member.type.partition("<")
    if container in ("Map", "List", "Set"):
        empty: dict[str, object] = {"Map": {}, "List": (), "Set": frozenset()}
        return empty[_without_sets_of_beans(member.type).partition("<")[0]]
    if member.initial == "new":
        return getattr(bodies, member.type)()
    if member.type in ("int", "long"):
        return 0 if member.initial == "now" else int(member.initial or 0)
    if member.type == "double":
        return float(member.initial or 0)
    if member.type == "boolean":
        return member.initial == "true"
    return member.initial
