"""Which addresses an entry of a white list names: those of RocketMQ's own tests, and any drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.access.white_list import WhiteList, address_of

if TYPE_CHECKING:
    import ipaddress

BYTES = st.integers(0, 255)
GROUPS = st.integers(0, 0xFFFF)


def ipv4(parts: list[int] | tuple[int, ...]) -> str:
    return ".".join(map(str, parts))


def ipv6(groups: list[int] | tuple[int, ...]) -> str:
    return ":".join(f"{group:x}" for group in groups)


def matches(entry: str, host: str) -> bool:
    return WhiteList(entry).matches(address_of(host))


@pytest.mark.parametrize("entry", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "a name"])
def test_a_star_alone_matches_every_address(entry: str, host: str) -> None:
    assert matches(entry, host)


@pytest.mark.parametrize("entry", ["", "  ", None, ","])
def test_nothing_matches_no_address(entry: str | None) -> None:
    assert WhiteList(entry).is_empty
    assert not WhiteList(entry).matches(address_of("10.0.0.1"))


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1", "", "a name"]),
        ("::1", ["::1", "0000:0000:0000:0000:0000:0000:0000:0001"], ["::2", "0.0.0.1"]),
        ("127.0.0.1,127.0.0.2", ["127.0.0.1", "127.0.0.2"], ["127.0.0.3"]),
        ("127.0.0.{1,2,3}", ["127.0.0.1", "127.0.0.3"], ["127.0.0.0", "127.0.0.4"]),
        ("127.0.0.{1}", ["127.0.0.1"], ["127.0.0.2"]),
        ("127.0.0.1-200", ["127.0.0.1", "127.0.0.200"], ["127.0.0.0", "127.0.0.201", "127.0.1.5"]),
        ("127.0.0.*", ["127.0.0.0", "127.0.0.255"], ["127.0.1.0"]),
        ("127.0.1-20.*", ["127.0.1.9", "127.0.20.9"], ["127.0.21.9", "127.0.0.9"]),
        ("192.100-150.*.*", ["192.130.0.2"], ["192.99.0.2", "193.130.0.2"]),
        ("127.*.*.*", ["127.9.9.9"], ["128.9.9.9"]),
        ("10.*.0.1", ["10.200.0.1"], ["10.200.0.2"]),
        ("10.0.0-0.*", ["10.0.0.7"], ["10.0.1.7"]),
        (
            "1050::0005:0600:300c:{1,2}",
            ["1050::5:600:300c:1", "1050:0:0:0:5:600:300C:2"],
            ["1050::5:600:300c:3"],
        ),
        ("1050::5:600:300c:1,::7", ["1050::5:600:300c:1", "::7"], ["::8"]),
        ("1050::5:600:300c:1-200", ["1050::5:600:300c:200"], ["1050::5:600:300c:201"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:ffff"], ["1050::5:600:300d:1"]),
        ("1050::5:600:300c:1-200:*", ["1050::5:600:300c:200:9"], ["1050::5:600:300c:201:9"]),
        ("1050:5:600:300c:3261:*", ["1050:5:600:300c:3261:1:2:3"], ["1050:5:600:300c:3262:1:2:3"]),
        ("1::*", ["1::7"], ["1::1:7", "2::7"]),
        ("::*", ["::7"], ["::1:7"]),
    ],
)
def test_an_entry_matches_what_it_names(entry: str, inside: list[str], outside: list[str]) -> None:
    assert [host for host in inside if not matches(entry, host)] == []
    assert [host for host in outside if matches(entry, host)] == []


@pytest.mark.parametrize(
    "entry",
    [
        *("256.0.0.1", "::1ggg", "127.0.0.1,2,3}", "::1,2,3}", "192.168.{1}", "{192.168.1}"),
        *("{192.168.1.1}", "127.0.0.{}", "127.0.0.2-1", "127.0.0.-1-200", "127.0.0.0-256"),
        *(
            "127.0.0.1-",
            "127.0.*",
            "127.0.0.0.*",
            "localhost",
            "010.0.0.1",
            "10.0.0.x-*",
            "1:2-3:4",
        ),
        *("*:1-5", "1:*:3", "1:2:3:4:5:6:7:8:*", "1::2::*", "12345::*", "fe80::1%eth0", "a-b", "-"),
        *("10.0.0.1/8", "10.0.0.*,10.0.0.1", "127.0.0.{1, 2}", "}", "a:b:{", "\u0661.0.0.*"),
    ],
)
def test_what_is_no_address_is_refused_with_the_words_of_a_stock_broker(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^Netaddress examine (scope )?Exception netaddress is "):
        WhiteList(entry)


@given(
    st.tuples(BYTES, BYTES, BYTES, BYTES),
    st.lists(st.sampled_from("n*-"), min_size=4, max_size=4),
    st.data(),
)
def test_an_ipv4_entry_matches_exactly_the_numbers_of_its_parts(
    address: tuple[int, ...], kinds: list[str], data: st.DataObject
) -> None:
    parts: list[tuple[str, range]] = []
    for number, kind in zip(address, kinds, strict=True):
        if kind == "*":
            parts.append(("*", range(256)))
        elif kind == "-":
            low, high = sorted((number, data.draw(BYTES)))
            parts.append((f"{low}-{high}", range(low, high + 1)))
        else:
            parts.append((str(number), range(number, number + 1)))
    entry = WhiteList(".".join(text for text, _ in parts))
    other = data.draw(st.tuples(BYTES, BYTES, BYTES, BYTES))
    for host in (address, other):
        inside = all(number in allowed for number, (_, allowed) in zip(host, parts, strict=True))
        assert entry.matches(address_of(ipv4(host))) == inside


@given(st.lists(GROUPS, min_size=8, max_size=8), GROUPS, st.booleans(), st.data())
def test_an_ipv6_entry_matches_its_range_and_nothing_beside_it(
    groups: list[int], end: int, has_star: bool, data: st.DataObject
) -> None:
    at = 6 if has_star else 7
    low, high = sorted((groups[at], end))
    text = f"{ipv6(groups[:at])}:{low:x}-{high:x}" + (":*" if has_star else "")
    entry = WhiteList(text)
    other = list(groups)
    other[at] = data.draw(GROUPS)
    other[7] = data.draw(GROUPS) if has_star else other[7]
    assert entry.matches(address_of(ipv6(groups)))
    assert entry.matches(address_of(ipv6(other))) == (low <= other[at] <= high)
    other[data.draw(st.integers(0, at - 1))] ^= 1
    assert not entry.matches(address_of(ipv6(other)))


@given(st.ip_addresses())
def test_an_address_matches_itself_however_it_is_written(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert matches(str(address), address.exploded)
    assert matches(address.exploded, str(address))


@given(st.text(alphabet="0123456789abf.:*-{},x ", max_size=40))
def test_any_text_is_read_or_refused(entry: str) -> None:
    try:
        white_list = WhiteList(entry)
    except ValueError:
        return
    assert white_list.matches(address_of("10.0.0.1")) in (True, False)
