"""The bench: the gateway, a bare relay and other gateways, measured in turn against one upstream.

Run from the project root: `python -m tests.bench` (`make bench`), `tests.bench.check`
(`make bench-check`), `tests.bench.profiling` (`make profile`), `tests.bench.fleet` (replicas) and
`tests.bench.callpath`. The gateway is started, asked and stopped as any user would: but for the
last two nothing here imports it.

One core is for the upstream and the load generator, the other for the servers under test. Rounds
alternate between the servers and medians are compared, as the machine is never quiet.
"""
