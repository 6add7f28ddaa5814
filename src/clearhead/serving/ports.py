"""Takes the port on which a server listens."""

import errno
import socket

from clearhead.errors import ClearheadError, ConfigError, setting

NOT_HERE = {
    errno.EADDRNOTAVAIL,
    *(getattr(socket, name) for name in dir(socket) if name.startswith("EAI_")),
}
"""Codes of errors for an address of another machine, or for a name that has no address."""


def take_port(host: str, port: int) -> socket.socket:
    """Take a port of this machine; 0 takes a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        code = getattr(error, "errno", None)
        if code in NOT_HERE:
            rule = "must be an address of this machine"
            remedy = f"try {setting('host', '127.0.0.1')}"
            raise ConfigError("host", host, rule, remedy) from None
        reason = f"cannot listen on {host}:{port} ({error})"
        if code == errno.EADDRINUSE:
            reason = f"port {port} is in use by another program"
        raise ClearheadError(f"{reason}; {setting('port', 0)} takes a free port") from None
