"""Administration of a gateway: what may be changed, and the socket over which it is asked.

What is reached from the TCP port stands behind the console's guard.
"""

API_PATH = "/admin/api"
"""The path under which the desk is asked, wherever it is served."""
