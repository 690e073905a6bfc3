"""The folklore: what is said of hooks, claim by claim, with a verdict and the evidence for it."""

from hooklaw.folklore.reading import Claim, Ruling, Theme, about, load_claims, load_themes

__all__ = ["Claim", "Ruling", "Theme", "about", "load_claims", "load_themes"]
