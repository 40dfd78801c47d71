"""Prints the ports of the sockets that systemd passes, or why they are refused."""

from gateway.server.http.systemd import ActivationError, inherited_sockets

if __name__ == "__main__":
    try:
        print(*(each.getsockname()[1] for each in inherited_sockets()))
    except ActivationError as error:
        print(error)
