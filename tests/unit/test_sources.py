"""Documentation is split into sentences; the kept table knows each sentence that a rule names."""

import sys
from importlib.metadata import version
from textwrap import dedent
from types import SimpleNamespace

import pytest

from helpers import complaint, ran
from hooklaw.errors import DocumentationError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Basis, Level, Rule, docstring, notes, observed, page, tutorial
from hooklaw.packing.example import laws
from hooklaw.sources import (
    Standing,
    Table,
    fingerprint,
    fingerprints,
    load_table,
    sections,
    sentences,
    standing,
)
from hooklaw.sources.__main__ import main
from hooklaw.sources._reading import read_docstring, read_page
from hooklaw.sources._writing import renewed, text
from hooklaw.sources.installed import counted
from hooklaw.sources.pages import tutorial_text
from hooklaw.sources.readings import load_readings

RULES = [found.rule for found in load_rules().values()]
HOOK = docstring("made.hook")
TABLE = Table(torch="1.0", commits={}, docstring={"made.hook": ["a", "b"]}, pages={"notes/made": {"how": ["c"]}})


def made(*sources, basis=Basis.DOCUMENTED):
    """Make a rule with these sources."""
    level = Level.MUST if basis is Basis.DOCUMENTED else Level.MAY
    return Rule("a.b", "made", "A law.", level, basis, [*sources], [], [])


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("A hook runs. It may\nreturn None.", ["A hook runs.", "It may return None."]),
        ("It fails! Does it? Yes.", ["It fails!", "Does it?", "Yes."]),
        (
            "Some objects, e.g. Tensors, i.e. leaves, cf. PyTorch.",
            ["Some objects, e.g. Tensors, i.e. leaves, cf. PyTorch."],
        ),
        ("Run it. (It is slow. Wait.) Then stop.", ["Run it.", "(It is slow.", "Wait.)", "Then stop."]),
        ('It is "safe." Really.', ['It is "safe."', "Really."]),
        ("Pack it. ``pack_hook`` runs.", ["Pack it.", "pack_hook runs."]),
        ("Pack it. :attr:`hook` runs.", ["Pack it.", "hook runs."]),
        ("Call ``x.grad. None`` first.", ["Call x.grad. None first."]),
        ("Of version 1.6 and torch.Tensor nothing. is said", ["Of version 1.6 and torch.Tensor nothing. is said"]),
        ("...", []),
    ],
)
def test_sentences_of_a_paragraph(paragraph, expected):
    """A sentence ends before a capital or code, not after an abbreviation nor within code."""
    assert expected == sentences(paragraph)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            ":meth:`~torch.Tensor.backward` and {func}`torch.autograd.grad`",
            "torch.Tensor.backward and torch.autograd.grad",
        ),
        (":ref:`the hooks<hooks-doc>` of `it <http://it>`_", "the hooks of it"),
        ("[the page](http://it/x_(y)) and **strong** *words*, 2*x*y", "the page) and strong words, 2*x*y"),
        ("``Function``\\ s and \\*args", "Functions and *args"),
        (":math:`(*, \\text{in})` where :math:`*` and ``x[0](y)!`` stay", "(*, \\text{in}) where * and x[0](y)! stay"),
        ("\u201cpacked\u201d, it\u2019s", '"packed", it\'s'),
    ],
)
def test_markup(marked, expected):
    """Roles, links, emphasis, escapes and typographic quotes are taken off."""
    assert sentences(marked) == [expected]


def split(source):
    """Return the sentences of an indented text."""
    return sentences(dedent(source))


def test_google_docstring():
    """Headers and code are no sentences; an entry of parameters begins one, and goes on with deeper or plain lines."""
    found = split("""
        Put a hook
        on it.

        Args:
            first (int): What comes
                first. Always.
            *rest: What follows
            and goes on.
            last (Tensor or
                None): The end

        Returns:
            a handle,
            to remove it

        Raises:
            ValueError: if it is wrong

        Example::

            >>> # xdoctest: +SKIP
            >>> hook(1)
            This is printed.

        Example:
            >>> hook(2)
            This is printed too.

            It shows 2.
    """)

    assert found == [
        "Put a hook on it.",
        "first (int): What comes first.",
        "Always.",
        "*rest: What follows and goes on.",
        "last (Tensor or None): The end",
        "a handle, to remove it",
        "ValueError: if it is wrong",
        "It shows 2.",
    ]


def test_signature():
    """Code of one line belongs to the sentence that announces it; longer code and doctests do not."""
    found = split("""
        It has this signature::

            hook(grad) -> None

        and this::
            hook() -> None

        An example is::

            a = 1
            b = 2

        Another is::

            >>> c = 3

        That is all.
    """)

    assert found == [
        "It has this signature: hook(grad) -> None",
        "and this: hook() -> None",
        "An example is:",
        "Another is:",
        "That is all.",
    ]


def test_directives():
    """A note is read, with what stands in its first line; code, pictures and comments are not."""
    found = split("""
        .. note:: It is slow.
            Wait for it.

        .. warning ::
            :class: red

            Do not run it.
            .. code-block:: python

                run()

        .. math:: x = y

        .. comment of the author
           Nothing to see.

        .. _label:

        .. function:: run(x)

            It runs.
    """)

    assert found == ["It is slow.", "Wait for it.", "Do not run it.", "It runs."]


def test_markdown():
    """Fences of notes are read, those of code are not; headings, labels and tables are left out."""
    found = split("""
        (label)=
        # A title

        ```{note}
        :class: red
        It is slow.
        ```

        ```python
        # A comment. In code.
        ```

        :::{warning}
        Do not run it.
        :::

        | a | table |
        |---|---|

        That is all.
    """)

    assert found == ["It is slow.", "Do not run it.", "That is all."]


def test_lists():
    """An item is a block of its own, whether its lines go on indented or not; a title with a rule is left out."""
    found = split("""
        The order is:
        1. first this
        and that
        2. then

           a second paragraph

        - or that
          in two lines
        * or this

        A title
        -------
        (a) the end
    """)

    assert found == [
        "The order is:",
        "first this and that",
        "then",
        "a second paragraph",
        "or that in two lines",
        "or this",
        "the end",
    ]


def test_dedent_ends_a_block():
    """A line that is indented less begins a block of its own."""
    assert split("begin\n\n    quoted\nplain") == ["begin", "quoted", "plain"]


def test_fingerprint_ignores_white_space_and_markup():
    """A line broken elsewhere, or other markup, leaves the fingerprint; another word changes it."""
    assert (
        fingerprints("The ``hook``\nruns.")
        == fingerprints("The :func:`hook`  runs.")
        == [fingerprint("The hook runs.")]
    )
    assert fingerprint("The hook ran.") != fingerprint("The hook runs.")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["a", "b"], (Standing.SAME, 2)),
        (["b", "a", "b"], (Standing.MOVED, 1)),
        (["a", "c"], (Standing.GONE, 0)),
        (["a"], (Standing.GONE, 0)),
        (["a", "b", "b"], (Standing.SAME, 2)),
    ],
)
def test_standing(found, expected):
    """A sentence of another version is the same, moved, or gone."""
    assert expected == standing(2, ["a", "b"], found)


def test_sections():
    """A section has the id of its heading, and not what its subsections say; headings in code are none."""
    found = sections(
        dedent("""
        Before.

        # The {meth}`~Page.of` it!
        Above.
        ```python
        # A comment
        ```
        ## How *to* do it
        Below.

        Underlined
        ==========
        Last.

        ## How to do it
        Again.
    """).strip()
    )

    assert {anchor: sentences(content) for anchor, content in found.items()} == {
        "": ["Before."],
        "the-page-of-it": ["Above."],
        "how-to-do-it": ["Below."],
        "underlined": ["Last."],
    }


def test_tutorial():
    """A tutorial is its docstring and the comments below a bar, not those within code."""
    source = (
        f'"""\nA title\n=======\n\nFirst."""\n\n{"#" * 70}\n# Second\n# goes on.\n\n# Code.\nx = 1\n# %%\n# Third.\n'
    )

    assert sentences(tutorial_text(source)) == ["First.", "Second goes on.", "Third."]


@pytest.mark.parametrize(("suffix", "source"), [(".md", "# How\nIt runs."), (".rst", "How\n===\nIt runs.")])
def test_read_page(tmp_path, suffix, source):
    """A page is found in either language."""
    (tmp_path / f"made{suffix}").write_text(source)

    assert sentences(read_page(tmp_path, "made")["how"]) == ["It runs."]


def test_read_tutorial(tmp_path):
    """A tutorial is one section, without an anchor."""
    (tmp_path / "made.py").write_text('"""It runs."""')

    assert [*read_page(tmp_path, "made")] == [""]


def test_read_nothing(tmp_path, monkeypatch):
    """What does not exist is one clear sentence."""
    with pytest.raises(DocumentationError, match=r"has no made.md, made.rst or made.py: put the source"):
        read_page(tmp_path, "made")
    with pytest.raises(DocumentationError, match="'json.nothing' can be read: .* is its package installed"):
        read_docstring("json.nothing")
    monkeypatch.setitem(sys.modules, "made", SimpleNamespace(hook=lambda: None))
    with pytest.raises(DocumentationError, match="made.hook has no docstring: name an object that is documented"):
        read_docstring("made.hook")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (made(HOOK.sentence(1, 2)), ""),
        (made(notes("made", "how").sentence(1)), ""),
        (made(HOOK, notes("made", "how").sentence(1)), ""),
        (made(observed("it was seen"), basis=Basis.OBSERVED), ""),
        (made(HOOK.sentence(3)), "a.b: docstring made.hook, sentence 3 does not exist, there are 2"),
        (made(HOOK.sentence(0)), "a.b: docstring made.hook, sentence 0 does not exist, there are 2"),
        (made(page("made", "how").sentence(1)), "a.b: the table of sentences lacks page made, section how, sentence 1"),
        (made(HOOK), "a.b: no source names a sentence"),
    ],
)
def test_complaint(rule, complaint):
    """The table says what is wrong with the sentences of a rule."""
    assert TABLE.complaint(rule).startswith(complaint)
    assert bool(TABLE.complaint(rule)) == bool(complaint)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HOOK.sentence(2), "docstring made.hook, sentence 2"),
        (HOOK.sentence(2, 1, 4), "docstring made.hook, sentences 1, 2 and 4"),
        (notes("made", "how").sentence(1), "notes made, section how, sentence 1"),
        (tutorial("made"), "tutorial made"),
    ],
)
def test_source_says_its_sentences(source, expected):
    """A source in words ends with the ordinals of its sentences."""
    assert expected == str(source)


def test_table_is_written_as_it_is_read(tmp_path, monkeypatch):
    """The file of a table is read as the same table."""
    (tmp_path / "table.toml").write_text(text(TABLE))
    monkeypatch.setattr("hooklaw.sources.table.TABLE", tmp_path / "table.toml")

    assert load_table.__wrapped__() == TABLE


def test_each_documented_rule_names_its_sentence():
    """Each documented rule names a sentence of a source, and each sentence that a rule names is in the kept table."""
    assert [complaint for rule in RULES if (complaint := load_table().complaint(rule))] == []


def test_each_documented_property_names_its_sentence():
    """So does each documented property of packers."""
    pytest.importorskip("torch", reason="packers are torch's")

    assert [complaint for rule in laws() if (complaint := load_table().complaint(rule))] == []


def test_docstrings_are_the_kept_ones():
    """The table has what is counted of the installed torch, in their order, also of modules that something loaded."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch.distributed.fsdp", reason="this torch is built without it")
    if version("torch").partition("+")[0] != load_table().torch:
        pytest.skip(f"the table was made from torch {load_table().torch}")
    named = {source.name for rule in [*RULES, *laws()] for source in rule.sources if source.kind == "docstring"}

    assert {
        name: fingerprints(text) for name, text in counted(named, load_readings()).items()
    } == load_table().docstring


def only(monkeypatch, docstrings):
    """Let these docstrings be all that is counted, and no page."""
    monkeypatch.setattr("hooklaw.sources._writing.load_table", lambda: TABLE)
    monkeypatch.setattr("hooklaw.sources._writing.counted", lambda named, readings: docstrings)
    monkeypatch.setattr("hooklaw.sources._writing.PAGES", ())


def test_renewed(tmp_path, monkeypatch):
    """A renewed table has the pages in the folder, the commits, and a line for each sentence that is elsewhere."""
    pytest.importorskip("torch", reason="torch is not installed")
    only(monkeypatch, {})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "made.md").write_text("# How\nIt runs. It ends.")

    table, shifted = renewed([made(notes("made", "how").sentence(1))], tmp_path, {"notes/made": "abc"})

    assert table.pages == {"notes/made": {"how": [fingerprint("It runs."), fingerprint("It ends.")]}}
    assert table.commits == {"notes/made": "abc"}
    assert shifted == ["a.b: notes made, section how, sentence 1: sentence 1 is changed or gone"]


@pytest.fixture
def command(monkeypatch, capsys):
    """Return `python -m hooklaw.sources` as a function in this process."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["sources", *map(str, args)])
        code = main()
        return ran(code, *capsys.readouterr())

    return run


def test_command_numbers_sentences(command, tmp_path):
    """The command numbers the sentences of a docstring, or of a section of a page."""
    (tmp_path / "made.md").write_text("# How\nIt runs. It ends.")

    assert "\n   1 Serialize" in command("json.dumps").stdout
    assert command("made#how", "--pages", tmp_path).stdout == "made#how\n   1 It runs.\n   2 It ends.\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["json.nothing"], "no docstring of 'json.nothing' can be read"),
        (["made#where", "--pages", "."], "made has no section 'where': it has how"),
        (["--write", "--commit", "made"], "--commit 'made' names no commit: write PAGE=COMMIT"),
    ],
)
def test_command_complains(command, tmp_path, monkeypatch, args, sentence):
    """Wrong input of the command is one sentence and exit code 3."""
    (tmp_path / "made.md").write_text("# How\nIt runs.")
    monkeypatch.chdir(tmp_path)
    done = command(*args)

    assert done.returncode == 3
    assert sentence in complaint(done)


@pytest.mark.parametrize(("shifted", "code"), [([], 0), (["a.b: sentence 1 is now 2"], 1)])
def test_command_compares(command, tmp_path, monkeypatch, shifted, code):
    """The command names each sentence that is elsewhere, and exits with 1 if there is any; it writes if asked to."""
    kept = tmp_path / "table.toml"
    monkeypatch.setattr("hooklaw.sources.__main__.TABLE", kept)
    monkeypatch.setattr("hooklaw.sources.__main__.renewed", lambda *args: (TABLE, shifted))
    done = command()

    assert (done.returncode, done.stdout.splitlines()[:-1], kept.exists()) == (code, shifted, False)
    assert " sentences that rules name are in place" in done.stdout
    assert (command("--write").returncode, kept.read_text()) == (code, text(TABLE))


def test_renewed_without_torch(monkeypatch):
    """Without torch there is nothing to compare, which is one sentence."""

    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", absent)

    with pytest.raises(DocumentationError, match="torch, whose docstrings are read, does not import: ModuleNotFound"):
        renewed([], None, {})


def test_renewed_without_a_docstring(monkeypatch):
    """A sentence of a docstring that the installed version lacks is gone."""
    monkeypatch.setattr("hooklaw.sources._writing.import_torch", lambda: "2.0")
    only(monkeypatch, {})

    table, shifted = renewed([made(HOOK.sentence(2))], None, {})

    assert (table.torch, table.docstring, shifted) == (
        "2.0",
        {"made.hook": []},
        ["a.b: docstring made.hook, sentence 2: sentence 2 is changed or gone"],
    )
