"""The shelf of policies: one file an implementation, one row in this table."""

from collections.abc import Callable

from cache_engine.policies.lru import Lru
from cache_engine.policy import Policy

POLICIES: dict[str, Callable[[], Policy]] = {"lru": Lru}
