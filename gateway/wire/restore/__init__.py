"""Undoes on the way back what a prompt's rendering had to do to it on the way there.

Events go in and events come out, by the same grammar. It must not know any format.
"""

from gateway.wire.restore.chain import EventTransformer, transform_reply, event_transformer

__all__ = ["EventTransformer", "transform_reply", "event_transformer"]
