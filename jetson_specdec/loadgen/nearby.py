# SPDX-License-Identifier: Apache-2.0
"""Is the server that is measured on this machine, so that its temperatures and clocks are the server's?"""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["on_this_machine"]


def on_this_machine(url: str) -> bool:
    """Say whether a server's address is this machine: loopback, one of its own addresses, or its own name.

    Names are not looked up: an unknown one is taken for another machine.

    Raises:
        EndpointError: it is not the address of a server.
    """
    import ipaddress
    import socket

    from jetson_specdec.loadgen.client import normal_url

    host = (urlsplit(normal_url(url)[0]).hostname or "").lower()
    if host == "localhost" or host.partition(".")[0] == socket.gethostname().lower().partition(".")[0]:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return True
    import psutil

    own = {entry.address.partition("%")[0] for entries in psutil.net_if_addrs().values() for entry in entries}
    return str(address) in own
