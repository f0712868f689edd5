"""Addresses of hosts in a cluster file: which Ray's launcher can use, and what is wrong with others. Pure."""

from __future__ import annotations

import ipaddress
import re

_LABEL = re.compile(r"^(?!-)[A-Za-z0-9_-]{1,63}(?<!-)$")
_EXAMPLES = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))


def address_fault(text: str) -> str | None:
    """Why a host cannot be reached under this address by all others; None if it may.

    IPv4 and names: Ray's launcher looks every address up with `gethostbyname`, which knows no IPv6.
    """
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return _name_fault(text)
    if address.version == 6:
        return (
            f"{text} is IPv6, which Ray's launcher for on-premise hosts cannot look up; give a name with an IPv4 "
            "address, or start Ray on each host by hand (docs/operations.md)"
        )
    if str(address) != text:
        return f"{text!r} is no plain address; write {address}"
    if address.is_unspecified or address.is_multicast or address == ipaddress.ip_address("255.255.255.255"):
        return f"{text} is the address of no host"
    if address.is_loopback:
        return f"{text} is loopback: other hosts would reach themselves; give the address in the cluster's network"
    return None


def same_host(one: str, other: str) -> bool:
    """Whether two addresses are written for the same host; names are not looked up."""
    return one.lower().rstrip(".") == other.lower().rstrip(".")


def is_example(text: str) -> bool:
    """Whether an address is one of those that documents use (RFC 5737), which no host has."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in _EXAMPLES)


def _name_fault(text: str) -> str | None:
    labels = text.rstrip(".").split(".")
    if labels[-1].isdigit():  # no name ends in a number, so this was to be an address
        return f"{text!r} is no IPv4 address (four numbers from 0 to 255)"
    if len(text) > 253 or not all(map(_LABEL.match, labels)):
        return f"{text!r} is neither an IPv4 address nor the name of a host"
    return None
