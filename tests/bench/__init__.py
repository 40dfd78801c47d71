"""The bench: the gateway and a bare relay, measured in turn against one upstream.

Run from the project root with `python -m tests.bench`. Nothing here knows how the gateway works
inside: it is started, asked and stopped as any user would.
"""
