"""The documentation in sentences: splitting it, recognising a sentence by its fingerprint, and the kept table of both.

No text of the documentation is kept. `python -m hooklaw.sources NAME` numbers the sentences of an installed docstring.
"""

from hooklaw.sources.fingerprints import Standing, fingerprint, fingerprints, standing
from hooklaw.sources.pages import sections
from hooklaw.sources.sentences import sentences
from hooklaw.sources.table import Table, load_table

__all__ = ["Standing", "Table", "fingerprint", "fingerprints", "load_table", "sections", "sentences", "standing"]
