"""What the kernel knows of a connection before the event loop does; nothing waits."""

import fcntl
import select
import sys
import termios


def has_unread(descriptor: int) -> bool:
    """Whether there is something to read: bytes, an error or the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def unacknowledged(descriptor: int) -> int:
    """Bytes that were written and that the other end has not confirmed, nor will after a reset; 0
    where the system does not tell, as of a closed socket."""
    try:
        size = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(size, sys.byteorder)
