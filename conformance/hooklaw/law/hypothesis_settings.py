"""Hypothesis settings: the same examples on every backend."""

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = 25
"""Examples of a property, unless the backend's attribute ``examples`` is lower."""

BASE = settings(
    deadline=None,
    derandomize=True,  # every backend gets the same examples
    database=None,
    report_multiple_bugs=False,  # one difference, not a group of them
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def load(examples: int = EXAMPLES, *, shrink: bool = True) -> None:
    """Load the profile; `shrink=False` saves time where only the outcome matters.

    Nothing is explained: that traces each line of a framework, and a result leaves out what it says.
    """
    phases = {*Phase} - {Phase.explain} if shrink else {Phase.explicit, Phase.generate}
    settings.register_profile("hooklaw", BASE, max_examples=examples, phases=phases)
    settings.load_profile("hooklaw")
