"""Undoes on the way back what a prompt's rendering had to do to it on the way there.

Events go in and events come out, by the same grammar. It must not know any format.
"""

from gateway.wire.restore.chain import Restorer, restore_reply, restorer

__all__ = ["Restorer", "restore_reply", "restorer"]
