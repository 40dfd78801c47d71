"""The configuration: one YAML file in, one frozen `Config` out, or every mistake at once.

What exists upstream is said here; who may use it is the ledger's business and unknown here.
"""

from gateway.config.allowance import (
    REGEX,
    AgentExpression,
    Keeping,
    Money,
    Rates,
    SharedLimits,
    UserAgents,
    agent_expression,
    check_agent,
)
from gateway.config.channel import Account, Channel, Timeouts
from gateway.config.demo import demo_config
from gateway.config.failure_rule import FailureRule
from gateway.config.load import find_config, load_config, parse_config, state_dir_of
from gateway.config.mistakes import ConfigMistakes, Mistake
from gateway.config.schema import (
    SOCKET_NAME,
    SOCKET_PATH_LIMIT,
    Config,
    Families,
    Lifecycle,
    Model,
    Server,
    Stickiness,
    shipped_catalog,
)
from gateway.config.secret import Secrets
from gateway.config.traits import Traits

__all__ = [
    "REGEX",
    "SOCKET_NAME",
    "SOCKET_PATH_LIMIT",
    "Account",
    "AgentExpression",
    "Channel",
    "Config",
    "ConfigMistakes",
    "FailureRule",
    "Families",
    "Keeping",
    "Lifecycle",
    "Mistake",
    "Model",
    "Money",
    "Rates",
    "Secrets",
    "Server",
    "SharedLimits",
    "Stickiness",
    "Timeouts",
    "Traits",
    "UserAgents",
    "agent_expression",
    "check_agent",
    "demo_config",
    "find_config",
    "load_config",
    "parse_config",
    "shipped_catalog",
    "state_dir_of",
]
