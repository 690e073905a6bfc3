"""What a person can get wrong: each exception is one condition, its text one sentence that says how to mend it."""


class HooklawError(Exception):
    """A fault of the input, not of a backend under judgement: the command line prints it and exits 3."""


class UnknownBackendError(HooklawError):
    """No backend goes by this name."""


class BackendImportError(HooklawError):
    """The module that holds the backend does not import."""


class BackendContractError(HooklawError):
    """The object is no backend: a verb it declares is missing, or a capability does not exist."""


class UnknownRuleError(HooklawError):
    """No rule has this id, or the selection matches none."""


class UnknownMutantError(HooklawError):
    """No mutant has this in its name."""


class RuleDefinitionError(HooklawError):
    """A rule is written in a way the registry refuses."""


class ExpectationFileError(HooklawError):
    """An expectation file cannot be read, or an entry in it is malformed."""


class RecordFileError(HooklawError):
    """A result file cannot be read, is not ours, is newer than we are, or is incomplete."""


class RecordConflictError(HooklawError):
    """Two runs cannot stand in one report."""


class ProgramError(HooklawError):
    """A fuzzed program cannot be read."""


class ScriptError(HooklawError):
    """A rule cannot be written as a script of its own."""


class FindingsFileError(HooklawError):
    """A file of known findings cannot be read, or an entry in it is malformed."""


class PackerError(HooklawError):
    """What was named to be judged is no packer: it does not import, takes arguments, or returns no context manager."""


class BenchError(HooklawError):
    """What was asked of the benchmark cannot be: no such workload or device, or no torch."""


class OutputError(HooklawError):
    """A file that was asked for cannot be written."""


class NotRunError(Exception):
    """Raised by a backend's factory: this machine lacks the hardware or the package, and the text says which."""
