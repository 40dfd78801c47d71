"""Administration of a gateway: what may be changed, and the socket over which it is asked.

Nothing in here may ever be reached from the TCP port.
"""

ROOT = "/admin/api"
"""The path under which the desk is asked."""
