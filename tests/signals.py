"""What tests that send signals share."""

import signal


def listen_to_ctrl_c() -> None:
    """In a new process, before it starts: a shell makes the processes that it starts in the
    background deaf to Ctrl-C, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
