"""Fault: a mistake in an adapter, in words that say what to mend."""

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """A mistake in an adapter."""

    what: str
    """The verb or the attribute that is wrong."""
    given: str
    """What was asked, as a call."""
    expected: str
    got: str
    mend: str
    sentence: str = ""
    """The whole in one sentence that follows the backend's name."""
    raised: bool = False
    """Whether a verb raised an exception."""

    def __post_init__(self) -> None:
        """Make the sentence, unless it is given."""
        if not self.sentence:
            said = f": {self.given} should be {self.expected}, was {self.got}: {self.mend}"
            msgspec.structs.force_setattr(self, "sentence", said)
