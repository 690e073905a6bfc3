"""How Hypothesis searches: the same examples on every backend, as many as are worth their time."""

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = 25
"""How many examples a property tries, unless the backend's own attribute ``examples`` says fewer."""

BASE = settings(
    deadline=None,
    derandomize=True,  # every backend gets the same examples
    database=None,
    report_multiple_bugs=False,  # one difference, not a group of them
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def load(examples: int = EXAMPLES, *, shrink: bool = True) -> None:
    """Make this the way in which properties are searched from now on; who only counts failures need not shrink them."""
    phases = tuple(Phase) if shrink else (Phase.explicit, Phase.generate)
    settings.register_profile("hooklaw", BASE, max_examples=examples, phases=phases)
    settings.load_profile("hooklaw")
