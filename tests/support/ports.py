"""Ports of this machine."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

HOST = "127.0.0.1"
# Below the ports that a system hands out by itself: of those, one was now and then drawn twice for one server, or
# somebody's by the time that the server started. Processes of one run of tests are at different places of the circle.
_CANDIDATES = range(10_000, 32_768)
_PLACE = os.getpid() * 97 % len(_CANDIDATES)
_circle: Iterator[int] = cycle([*_CANDIDATES[_PLACE:], *_CANDIDATES[:_PLACE]])


def free_port() -> int:
    """Return a port that nobody uses, another one at each call."""
    for port in _circle:
        with suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port
    raise AssertionError("a circle has no end")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
