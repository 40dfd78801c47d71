"""The configuration: one YAML file to one frozen `Config`, or all problems at once."""

from gateway.config.channel import Account, Channel, FailureRule, Timeouts, Traits
from gateway.config.document import ConfigError, ConfigProblem
from gateway.config.limits import (
    REGEX_PREFIX,
    Money,
    Rates,
    Retention,
    SharedLimits,
    UserAgents,
    compile_agent_pattern,
    validate_agent_pattern,
)
from gateway.config.load import demo_config, find_config, find_state_dir, load_config, parse_config
from gateway.config.schema import (
    MAX_SOCKET_PATH,
    SOCKET_NAME,
    AffinitySettings,
    Config,
    Families,
    Lifecycle,
    Model,
    Server,
    default_catalog,
)
from gateway.config.secrets import SecretResolver

__all__ = [
    "MAX_SOCKET_PATH",
    "REGEX_PREFIX",
    "SOCKET_NAME",
    "Account",
    "AffinitySettings",
    "Channel",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "FailureRule",
    "Families",
    "Lifecycle",
    "Model",
    "Money",
    "Rates",
    "Retention",
    "SecretResolver",
    "Server",
    "SharedLimits",
    "Timeouts",
    "Traits",
    "UserAgents",
    "compile_agent_pattern",
    "default_catalog",
    "demo_config",
    "find_config",
    "find_state_dir",
    "load_config",
    "parse_config",
    "validate_agent_pattern",
]
