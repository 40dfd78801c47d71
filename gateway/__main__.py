"""`python -m gateway` is `gateway`. It must not know more than that."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="gateway")
