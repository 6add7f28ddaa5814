"""Takes the port on which a server listens."""

import socket

from clearhead.errors import ClearheadError, setting


def take_port(host: str, port: int) -> socket.socket:
    """Take a port of this machine; 0 takes a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise ClearheadError(
            f"cannot listen on {host}:{port} ({error}); try {setting('port', 0)}, which takes a "
            "free port"
        ) from None
