"""Sockets of the pages for probes and Prometheus: bound early, and passed from parent to child.

`kinstream up` binds the ports of its agents before it starts any, and each worker listens on the socket that it
inherits: the page at that address is always the agent's own, across restarts too.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from kinstream.streams.errors import CannotListen

#: File descriptor of a bound socket that a parent passes to the worker.
HANDED: Final = "KINSTREAM_HTTP_SOCKET"


def bound(host: str, port: int, section: str) -> socket.socket:
    """A socket with that address, which does not listen yet; port 0 stands for any free one.

    Parameters
    ----------
    section : of the settings that name the address, such as "worker".

    Raises
    ------
    CannotListen : the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets created with an explicit protocol.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if port:
            # Connections of a predecessor may linger. A port that is chosen here must not be in use.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise cannot_listen(host, port, section, error) from error
    return made


def cannot_listen(host: str, port: int, section: str, error: Exception) -> CannotListen:
    """The error, with the setting to change."""
    number = error.errno if isinstance(error, OSError) else None
    where = f"{host} port {port}"
    if number == errno.EADDRINUSE:
        return CannotListen(
            f"cannot listen on {where}: another process has this port; stop it, or change {section}.http_port "
            f"(0 stands for any free one)"
        )
    if number == errno.EACCES:
        return CannotListen(f"cannot listen on {where}: not permitted; change {section}.http_port")
    cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotListen(
        f"cannot listen on {where}: {cause}; change {section}.http_host or {section}.http_port"
    )


def handed() -> socket.socket | None:
    """The socket that the parent has bound for this process; None without one."""
    number = os.environ.get(HANDED)
    return None if number is None else socket.socket(fileno=os.dup(int(number)))
