"""Operations on a gateway, and the admin API that serves them."""

API_PATH = "/admin/api"
"""The path on the admin socket, and on the TCP port behind the console's authentication."""
