"""Which addresses Ray's launcher can use for hosts."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.clusters.cluster_address import address_fault, is_example, same_host


def usable(address: ipaddress.IPv4Address) -> bool:
    """An oracle of another make: by the numbers of RFC 1122, 5771 and 919."""
    first = int(address) >> 24
    return (
        address != ipaddress.IPv4Address(0) and first != 127 and not 224 <= first <= 239 and int(address) != 2**32 - 1
    )


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_every_ipv4_address_that_a_host_may_have_is_taken_and_no_other(address: ipaddress.IPv4Address) -> None:
    assert (address_fault(str(address)) is None) == usable(address)


@settings(deadline=None)
@given(st.ip_addresses(v=6))
def test_no_ipv6_address_is_taken_because_ray_cannot_look_it_up(address: ipaddress.IPv6Address) -> None:
    assert "IPv6" in (address_fault(str(address)) or "")
    assert "IPv6" in (address_fault(f"[{address}]") or "")


def test_what_ray_calls_for_an_address_knows_no_ipv6() -> None:
    with pytest.raises(OSError, match=r"not supported|not known|resolution"):
        socket.gethostbyname("2001:db8::1")


@settings(deadline=None)
@given(st.text(alphabet="0123456789.", min_size=1, max_size=20))
def test_numbers_and_dots_are_an_address_or_nothing(text: str) -> None:
    try:
        expected = usable(ipaddress.IPv4Address(text))
    except ValueError:
        expected = False

    assert (address_fault(text) is None) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("192.0.2.300", "is no IPv4 address"),
        ("10.0.0", "is no IPv4 address"),
        ("10.0.0.1/24", "neither an IPv4 address nor the name"),
        ("10.0.0.1:22", "neither an IPv4 address nor the name"),
        ("[10.0.0.1]", "write 10.0.0.1"),
        ("gpu 1", "neither an IPv4 address nor the name"),
        ("-gpu", "neither an IPv4 address nor the name"),
        ("", "neither an IPv4 address nor the name"),
        ("0.0.0.0", "the address of no host"),
        ("224.0.0.1", "the address of no host"),
        ("127.0.0.1", "loopback"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(text: str, told: str) -> None:
    assert told in (address_fault(text) or "")


@pytest.mark.parametrize("name", ["gpu-01", "gpu-01.cluster.example", "GPU1", "h_1", "node.example."])
def test_names_of_hosts_are_taken(name: str) -> None:
    assert address_fault(name) is None


def test_hosts_are_the_same_whatever_the_case_and_the_final_dot() -> None:
    assert same_host("GPU1.Example.", "gpu1.example")
    assert not same_host("gpu1", "gpu2")


def test_addresses_for_documents_are_known() -> None:
    assert [is_example(a) for a in ("192.0.2.10", "203.0.113.9", "10.0.0.1", "gpu1")] == [True, True, False, False]
