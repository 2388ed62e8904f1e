"""Ports of this machine."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

HOST = "127.0.0.1"
# Below Linux's ephemeral ports: among those, two probes may get the same one, and another process may bind it before
# the server does. Each process starts at its own offset.
_CANDIDATES = range(10_000, 32_768)
_OFFSET = os.getpid() * 97 % len(_CANDIDATES)
_circle: Iterator[int] = cycle([*_CANDIDATES[_OFFSET:], *_CANDIDATES[:_OFFSET]])


def free_port() -> int:
    """Return a free port, another one at each call."""
    return next(filter(_is_free, _circle))


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        probe.bind((HOST, port))
        return True
    return False


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
