"""The configuration: one YAML file in, one frozen `Config` out, or every mistake at once.

What exists upstream is said here; who may use it is the ledger's business and unknown here.
"""

from gateway.config.allowance import (
    REGEX_PREFIX,
    CompiledPattern,
    Retention,
    Money,
    Rates,
    SharedLimits,
    UserAgents,
    compile_agent_pattern,
    validate_agent_pattern,
)
from gateway.config.channel import Account, Channel, Timeouts
from gateway.config.demo import demo_config
from gateway.config.failure_rule import FailureRule
from gateway.config.load import find_config, load_config, parse_config, find_state_dir
from gateway.config.mistakes import ConfigError, ConfigProblem
from gateway.config.schema import (
    SOCKET_NAME,
    MAX_SOCKET_PATH,
    Config,
    Families,
    Lifecycle,
    Model,
    Server,
    AffinitySettings,
    default_catalog,
)
from gateway.config.secret import SecretResolver
from gateway.config.traits import Traits

__all__ = [
    "REGEX_PREFIX",
    "SOCKET_NAME",
    "MAX_SOCKET_PATH",
    "Account",
    "CompiledPattern",
    "Channel",
    "Config",
    "ConfigError",
    "FailureRule",
    "Families",
    "Retention",
    "Lifecycle",
    "ConfigProblem",
    "Model",
    "Money",
    "Rates",
    "SecretResolver",
    "Server",
    "SharedLimits",
    "AffinitySettings",
    "Timeouts",
    "Traits",
    "UserAgents",
    "compile_agent_pattern",
    "validate_agent_pattern",
    "demo_config",
    "find_config",
    "load_config",
    "parse_config",
    "default_catalog",
    "find_state_dir",
]
