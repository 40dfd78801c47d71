"""The ledger: who may use the gateway, and what happened. It knows neither formats nor routing."""
