"""What a person can get wrong in naming a strategy."""

from hooklaw import HooklawError


class StrategyError(HooklawError, ValueError):
    """No strategy can be made of this name, or it does not fit the model."""
