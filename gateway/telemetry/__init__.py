"""What the gateway tells monitoring systems: metrics, traces, its own log."""
