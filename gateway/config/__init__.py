"""The configuration: one YAML file to one frozen `Config`, or all problems at once."""
