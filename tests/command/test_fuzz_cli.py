"""`hooklaw fuzz`: what it finds, contains, shrinks, knows and refuses, on backends that are wrong on purpose."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from helpers import DATA, complaint, started
from hooklaw import cli
from hooklaw.fuzz.campaign import schedule
from hooklaw.fuzz.campaign.known_findings import SILENT, follows, read
from hooklaw.fuzz.program import Instruction, dump, parse
from hooklaw.law.collection import load_rules
from hooklaw.model.flags import TORCH

DEFAULTS = ("--programs", 120)
LIMITS = {"Hangs": 2}
"""Seconds to wait for a program of these; a busy machine is given the usual time for the others."""
DEADLY = {"Segfaults", "Hangs", "Touchy"}
"""Hundreds of programs end their process: one without torch is forked in a fifth of the time."""
FEW = ("--programs", 20)
HOOKED = (
    Instruction("leaf", ("x1",), (), ((2, 2), "float64", True)),
    Instruction("hook", ("h1",), ("x1",), (("nothing",),)),
    Instruction("backward", (), ("x1",), (1.0, True, False)),
)
FREED = 'flag = "numbers-are-freed"'
CRASH = 'fingerprint = "crash SIGSEGV: leaf exp"\nreason = "it is broken"\nrule = "documentation silent"'
MUTANTS = [
    "hooks-run-in-reverse-order",
    "replacement-not-propagated",
    "root-hook-skipped",
    "tensor-hook-handle-removes-nothing",
    "retain-grad-lost",
    "gradient-starts-as-zeros",
    "unpacked-tensor-cached",
    "node-pre-hook-ignored",
    "post-accumulate-before-accumulation",
    "backward-inputs-option-ignored",
    "hooks-run-with-grad-mode-on",
]

CRASHES = """
[[finding]]
fingerprint = "crash SIGSEGV: leaf backward"
pattern = ["leaf", "{}"]
rule = "documentation silent"
reason = "a test says so"
"""


@pytest.fixture(scope="module")
def plain_runs():
    """Keep what runs without further arguments did, since one run shows several things."""
    return {}


@pytest.fixture
def fuzz(hooklaw, plain_runs):
    """Return the verb on one of the dangerous backends, and what it printed as JSON."""

    def run(name, *args):
        if not args and name in plain_runs:
            return plain_runs[name]
        limit = ("--limit", LIMITS[name]) if name in LIMITS else ()
        words = ("--backend", f"dangerous:backend:{name}", *DEFAULTS, *limit, "--format", "json", *args)
        done = hooklaw("fuzz", *words, path=[DATA], apart=name in DEADLY)
        done.found = json.loads(done.stdout) if done.stdout else None
        if not args:
            plain_runs[name] = done
        return done

    return run


@pytest.fixture
def known(tmp_path):
    """Return a function that writes a file of known findings."""

    def write(*entries):
        path = tmp_path / "known.toml"
        path.write_text("\n".join(f"[[finding]]\n{entry}\n" for entry in entries))
        return path

    return write


@pytest.fixture
def corpus(tmp_path):
    """Return a function that writes lines into a file."""

    def write(*lines):
        path = tmp_path / "programs.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def ops(finding):
    """Return the instructions' names."""
    return [one[0] for one in finding["program"]]


def test_nothing_is_found(fuzz):
    """On a backend that keeps the law nothing is found, and the exit code is 0."""
    done = fuzz("Sound")

    assert done.returncode == 0
    assert done.found["findings"] == []
    assert done.found["programs"] == 120


def test_contract(fuzz):
    """A finding is told once, shrunk, with its code, both lanes, and how often it was seen."""
    done = fuzz("Doubles")
    finding = next(one for one in done.found["findings"] if one["fingerprint"] == "differs: leaf hook backward")

    assert done.returncode == 1
    assert {"backend", "versions", "seed", "programs", "seconds", "findings"} <= done.found.keys()
    assert not finding["known"]
    assert (finding["kind"], finding["rule"], finding["seed"]) == ("differs", "", 0)
    assert ops(finding) == ["leaf", "hook", "backward"]
    assert finding["shrunk_from"] > 3
    assert finding["count"] > 1
    assert "register_hook" in finding["code"]
    assert finding["expected"][finding["difference"]][:2] == ["h1", [1.0, 1.0]]
    assert finding["observed"][finding["difference"]][:2] == ["h1", [2.0, 2.0]]
    assert finding["text"].splitlines()[1] == "h1 = hook(x1, nothing)"


def test_text(hooklaw):
    """A person reads the fingerprint, the program, the code, the lanes, and the count last."""
    done = hooklaw("fuzz", "--backend", "dangerous:backend:Doubles", *DEFAULTS, path=[DATA])

    assert "NEW  differs: leaf hook backward\n" in done.stdout
    for block in (
        "  program\n    x1 = leaf",
        "  code\n    import torch",
        "  expected\n    > h1",
        "  observed\n    > h1",
    ):
        assert block in done.stdout
    assert ", 0 known findings, " in done.stdout.splitlines()[-1]


def test_many_that_differ_are_not_all_shrunk(fuzz):
    """A backend that is wrong everywhere is known at once: a few programs are shrunk, others named, the run ended."""
    done = fuzz("Doubles", "--programs", 10000)

    assert done.found["stopped"]
    assert done.found["programs"] < 1000
    assert done.found["unshrunk"] == sorted(done.found["unshrunk"]) != []


@pytest.mark.parametrize(("name", "programs"), [("Sound", 300), ("Doubles", 40), ("Segfaults", 150)])
def test_same_seed_same_output(verb, monkeypatch, name, programs):
    """Seed and numbers alone decide what is found, not how many processes look for it."""
    monkeypatch.setattr(schedule, "RANGE", programs // 4)  # or one process would have them all
    chosen = ("--seed", 3, "--programs", programs, "--stop-after", 0, "--no-shrink", "--limit", 30)
    words = ("fuzz", "--backend", f"dangerous:backend:{name}", "--format", "json", *chosen)
    one, other = (json.loads(verb(*words, "--jobs", jobs).stdout) for jobs in (1, 3))
    for found in (one, other):
        del found["seconds"], found["cpu_seconds"]

    assert one == other


def test_another_seed_is_another_run(fuzz):
    """Another seed draws other programs."""
    first, second = (
        fuzz("Doubles", "--seed", seed, "--programs", 40, "--no-shrink").found["findings"] for seed in (0, 1)
    )

    assert first != second


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [("Segfaults", "crash SIGSEGV: leaf exp"), ("Quits", "crash exit 0: leaf split"), ("Hangs", "hang: leaf cos_")],
)
def test_death_is_contained(fuzz, name, fingerprint):
    """A program that ends or blocks its process is a finding with its least program, found once."""
    done = fuzz(name)
    (finding,) = done.found["findings"]

    assert done.returncode == 1
    assert finding["fingerprint"] == fingerprint
    assert finding["shrunk"]
    assert finding["observed"] == [
        [f"the process died: {fingerprint.split(':')[0]} at {finding['text'].splitlines()[1]}"]
    ]


def test_run_goes_on_after_a_crash(fuzz):
    """Every program is judged though several crash, and those that crash alike are counted."""
    done = fuzz("Segfaults")

    assert done.found["programs"] == 120
    assert done.found["findings"][0]["count"] > 1


def test_a_hang_ends_the_run_soon(fuzz):
    """A backend that hangs again and again is not waited for."""
    done = fuzz("Hangs")

    assert done.found["stopped"]
    assert done.found["findings"][0]["count"] == 3


def test_exit_out_of_a_look(fuzz):
    """An exception where a backend may raise none is a finding too, even one that would end the process."""
    done = fuzz("Leaves")

    assert done.found["findings"][0]["fingerprint"].startswith("error SystemExit: leaf")
    assert done.found["findings"][0]["observed"] == [["error SystemExit: no gradients today"]]


def test_what_does_not_happen_again_is_said_so(fuzz):
    """A difference that the program alone does not show is reported as it was drawn, with a note."""
    (finding, *_) = fuzz("Fickle", "--programs", 500).found["findings"]

    assert finding["note"] == "it did not happen again when the program was run by itself"
    assert not finding["shrunk"]
    assert len(finding["program"]) == finding["shrunk_from"]


@pytest.mark.parametrize(("ends", "known"), [("backward", True), ("load_state_dict", False)])
def test_what_survived_a_known_crash_is_known(fuzz, tmp_path, ends, known):
    """A difference that comes but once is put down to the known crash that its program is of the kind of."""
    file = tmp_path / "known.toml"
    file.write_text(CRASHES.format(ends))
    (finding, *_) = fuzz("Fickle", "--programs", 500, "--known", file).found["findings"]

    assert finding["known"] == known
    assert finding["note"] == "it did not happen again when the program was run by itself"


def test_candidate_that_crashes_is_passed_over(fuzz, corpus):
    """Shrinking goes on around candidates that end their process."""
    program = (*HOOKED[:2], HOOKED[2]._replace(how=(2.0, True, True)))
    (finding,) = fuzz("Touchy", "--replay", corpus(dump(program))).found["findings"]

    assert finding["program"][0][3][0] == [2, 2]
    assert finding["program"][2][3] == [1.0, None, False]


def test_what_a_backend_lacks_is_skipped(fuzz):
    """A program that needs what a backend lacks is not run on it."""
    done = fuzz("Poor")

    assert done.returncode == 0
    assert done.found["skipped"] > 10
    assert done.found["programs"] + done.found["skipped"] == 120


def test_backend_that_cannot_be_inherited(fuzz):
    """A backend of another device is loaded again by each process."""
    done = fuzz("Abroad", "--programs", 60)

    assert "differs: leaf hook backward" in [one["fingerprint"] for one in done.found["findings"]]


def test_own_way(fuzz):
    """A backend may replay programs in its own way: order between names is free then, and a refusal is counted."""
    done = fuzz("InItsOwnWay", "--programs", 250)

    assert done.returncode == 0
    assert done.found["findings"] == []
    assert done.found["not_replayed"] == {"no splits today": done.found["skipped"]}
    assert done.found["skipped"] > 5


def test_own_way_differs(fuzz):
    """What differs is found there too, with the events of a name together, and with the backend's own code."""
    done = fuzz("DoublesInItsOwnWay", "--programs", 60)
    finding = next(one for one in done.found["findings"] if one["fingerprint"] == "differs: leaf hook backward")
    place = finding["difference"]

    assert finding["code"] == "3 lines of my own"
    assert finding["expected"][place][:2] == ["h1", [1.0, 1.0]]
    assert finding["observed"][place][:2] == ["h1", [2.0, 2.0]]


def test_what_is_not_replayed_is_said(hooklaw):
    """A person reads why programs were skipped."""
    done = hooklaw("fuzz", "--backend", "dangerous:backend:InItsOwnWay", *DEFAULTS, path=[DATA])

    assert re.search(r"^skipped +\d+ x  no splits today$", done.stdout, re.MULTILINE)


def test_known_as_a_whole(fuzz, known, corpus):
    """A program whose own fingerprint stands under also is known without being shrunk."""
    entry = 'fingerprint = "differs: leaf hook backward"\nreason = "broken"\nrule = "documentation silent"\n'
    program = corpus(dump((*HOOKED[:2], *HOOKED[1:])))
    (new,) = fuzz("Doubles", "--replay", program, "--no-shrink").found["findings"]
    done = fuzz("Doubles", "--replay", program, "--known", known(f"{entry}also = ['{new['fingerprint']}']"))
    (finding,) = done.found["findings"]

    assert done.returncode == 0
    assert finding["fingerprint"] == "differs: leaf hook backward"
    assert not finding["shrunk"]


@pytest.mark.parametrize("words", [["--replay"], ["--replay", "corpus"]])
def test_own_corpus(fuzz, words):
    """Without a file, or under the name of corpus, the programs that hooklaw brings are replayed."""
    done = fuzz("Sound", *words, "--programs", 3)

    assert (done.returncode, done.found["programs"], done.found["seed"]) == (0, 3, None)


def test_flag_that_is_not_known_is_new(hooklaw):
    """A departure that the engine can play is new where no file lists it, with the rule that the flag names."""
    done = hooklaw("fuzz", "--backend", "reference:numbers-are-freed", "--programs", 300, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]

    assert done.returncode == 1
    assert (finding["fingerprint"], finding["known"]) == ("flag numbers-are-freed", False)
    assert finding["rule"] == SILENT
    assert len(finding["program"]) < finding["shrunk_from"]


def test_known_flag(hooklaw, known):
    """One that a file lists is known, told in one line, and the exit code is 0."""
    done = hooklaw("fuzz", "--backend", "reference:numbers-are-freed", "--programs", 300, "--known", known(FREED))

    assert done.returncode == 0
    assert " x  flag numbers-are-freed: a product with a number saves the number" in done.stdout
    assert ", 1 known finding, 0 new, " in done.stdout


def test_all_known(hooklaw, known):
    """Known findings are shrunk and printed in full where that is asked for."""
    given = ("fuzz", "--backend", "reference:numbers-are-freed", "--programs", 300, "--known", known(FREED))
    done = hooklaw(*given, "--all-known")

    assert done.returncode == 0
    assert "known  flag numbers-are-freed\n" in done.stdout
    assert "  code\n    import torch" in done.stdout


def test_known_fingerprint(fuzz, known):
    """A crash that a file lists by its fingerprint is known, with the file's reason."""
    done = fuzz("Segfaults", *FEW, "--known", known(CRASH))

    assert done.returncode == 0
    assert done.found["findings"][0]["reason"] == "it is broken"


def test_known_pattern(fuzz, known):
    """A crash whose least program follows a pattern of the file is known; one that dies elsewhere is not."""
    entry = 'fingerprint = "crash SIGSEGV: leaf sum exp"\nreason = "broken"\nrule = "documentation silent"\n'

    assert fuzz("Segfaults", *FEW, "--known", known(entry + 'pattern = ["leaf", "exp|sin"]')).returncode == 0
    assert fuzz("Segfaults", *FEW, "--known", known(entry + 'pattern = ["leaf"]')).returncode == 1


def test_includes(fuzz, known):
    """A file may take over what another one lists."""
    path = known(CRASH)
    path.rename(path.with_name("other.toml"))
    path.write_text('includes = "other.toml"\n')

    assert fuzz("Segfaults", *FEW, "--known", path).returncode == 0


def test_follows():
    """A pattern is a subsequence, and its last is where the program died."""
    assert follows(["leaf", "hook|retain_grad"], HOOKED)
    assert follows(["leaf", "hook|retain_grad"], HOOKED, died_at=1)
    assert not follows(["leaf", "hook"], HOOKED, died_at=2)
    assert not follows(["hook", "leaf"], HOOKED)


def test_replay(fuzz, corpus):
    """Programs out of a file are known by their lines; comments and empty lines are none."""
    done = fuzz("Doubles", "--replay", corpus("# mine", "", dump(HOOKED[:1]), dump(HOOKED)))

    assert done.found["programs"] == 2
    assert done.found["seed"] is None
    assert done.found["findings"][0]["number"] == 4


def test_replay_from_stdin(environment):
    """Programs can come through a pipe."""
    command = [sys.executable, "-m", "hooklaw", "fuzz", "--backend", "dangerous:backend:Doubles", "--replay", "-"]
    done = subprocess.run(command, input=dump(HOOKED), env=environment, text=True, capture_output=True, check=False)

    assert done.returncode == 1
    assert "found     line 1" in done.stdout


def test_save(fuzz, tmp_path):
    """Shrunk programs are appended once, and can be replayed."""
    corpus = tmp_path / "corpus.jsonl"
    first = fuzz("Doubles", *FEW, "--save", corpus).found["findings"]
    fuzz("Doubles", *FEW, "--save", corpus)

    assert {parse(line) for line in corpus.read_text().splitlines()} == {parse(dump(one["program"])) for one in first}
    assert len(corpus.read_text().splitlines()) == len(first)
    assert fuzz("Doubles", "--replay", corpus).returncode == 1
    assert fuzz("Sound", "--replay", corpus).returncode == 0


def test_minutes(verb):
    """Where only time is given, as many programs as fit are run."""
    given = ("--minutes", 0.03, "--format", "json")
    done = verb("fuzz", "--backend", "dangerous:backend:Sound", *given)
    found = json.loads(done.stdout)

    assert done.returncode == 0
    assert found["programs"] > 20
    assert 1.8 <= found["seconds"] < 20


def test_interrupt(environment):
    """Ctrl-C prints what was found so far, exits 3 and leaves no process behind."""
    command = [sys.executable, "-m", "hooklaw", "fuzz", "--backend", "dangerous:backend:Segfaults", "--stop-after", "0"]
    terminal, stderr = os.openpty()  # where progress is shown at once
    run = started([*command, "--minutes", "5", "--jobs", "2"], env=environment, text=True, stdout=-1, stderr=stderr)
    os.close(stderr)
    said = b""
    while b" 1 new" not in said:
        said += os.read(terminal, 4096)
    os.killpg(run.pid, signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    with suppress(OSError):  # the end of a terminal
        while True:
            said += os.read(terminal, 4096)

    assert run.returncode == 3
    assert "NEW  crash SIGSEGV: leaf exp" in out
    assert b"hooklaw: interrupted, after " in said.splitlines()[-1]
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)


def test_interrupt_while_a_verb_is_imported(capsys, monkeypatch, tmp_path):
    """Ctrl-C before the verb runs is one sentence and exit code 3, too."""
    (tmp_path / "interrupted_import.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.VERBS, "fuzz", ("interrupted_import", "a test's own"))

    assert cli.main(["fuzz"]) == 3
    assert capsys.readouterr().err == "hooklaw: interrupted\n"


SOUND = ("--backend", "dangerous:backend:Sound")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--programs", "-3"), "argument --programs: invalid count value"),
        (("--seed", "x"), "argument --seed: invalid count value"),
        (("--jobs", "0"), "argument --jobs: invalid positive value"),
        (("--minutes", "0"), "argument --minutes: invalid minutes value"),
        (("--backend", "torch-eagre"), "did you mean torch-eager"),
        (("--backend", "dangerous:broken"), "its factory raised RuntimeError: nothing works here"),
        (("--backend", "dangerous:backend:Mute"), "which lacks retains-grad"),
        ((*SOUND, "--known", "nowhere.toml"), "cannot read the findings file nowhere.toml"),
        ((*SOUND, "--replay", "nowhere.jsonl"), "cannot read the programs in nowhere.jsonl"),
        ((*SOUND, "--save", "."), "cannot save programs in .: Is a directory"),
    ],
)
def test_wrong_use(verb, args, says):
    """What cannot be run is refused with one sentence and exit code 3."""
    done = verb("fuzz", *args)

    assert done.returncode == 3
    assert says in complaint(done)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (["flag = 1"], "known.toml:1: Expected `str`, got `int`"),
        (['flags = "x"'], "known.toml:1: Object contains unknown field `flags`"),
        ([FREED, FREED.replace("are", "were")], "known.toml:4: the reference engine has no flag"),
        ([FREED, FREED], "known.toml:4: 'numbers-are-freed' already has an entry in"),
        ([f"{FREED}\n{CRASH}"], "has both a flag and a fingerprint, or neither"),
        (['reason = "why"'], "has both a flag and a fingerprint, or neither"),
        ([f'{FREED}\nrule = "no.such-rule"'], "no rule has the id 'no.such-rule'"),
        ([f'{FREED}\npattern = ["exp"]'], "a flag has no pattern"),
        ([f'{FREED}\nalso = ["differs: exp"]'], "a flag has no also"),
        ([f'{CRASH}\nalso = ["differ: exp"]'], "'differ: exp' is not a fingerprint"),
        ([CRASH.replace('"it is broken"', '""')], "the entry has no reason"),
        ([CRASH.replace("rule =", "issue =")], "no rule is named"),
        ([CRASH.replace("crash", "smash")], "is not a fingerprint: begin it with differs, crash, hang, error"),
        ([f'{CRASH}\npattern = ["expp"]'], "the pattern names 'expp', which is not an operation"),
        (["[[mistake]]"], "known.toml:1: a findings file has only includes, [defaults] and [[finding]] tables, found"),
        (['flag = ["numbers-are-freed", "numbers-are-freed"]'], "'numbers-are-freed' already has an entry in"),
        (['reason = "why"\n[defaults]\nissue = "x"'], "known.toml:3: [defaults] has only rule, found issue"),
        ([CRASH.replace("rule", "issue") + '\n[defaults]\nrule = "no.such-rule"'], "no rule has the id 'no.such-rule'"),
        (["flag"], "the findings file is not valid TOML"),
    ],
)
def test_bad_findings_file(verb, known, entries, says):
    """A malformed entry is refused with its file and line."""
    done = verb("fuzz", *SOUND, "--known", known(*entries))

    assert done.returncode == 3
    assert says in complaint(done)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[", "programs.jsonl:2: not a program: "),
        ('{"op": "leaf"}', "programs.jsonl:2: not a program: "),
        ('[["leaf"]]', "programs.jsonl:2: not a program: "),
        ("# two", "programs.jsonl has no program"),
        ('[["laef", [], [], [], 0]]', "programs.jsonl:2: 'laef' is not an operation"),
    ],
)
def test_bad_program(verb, corpus, line, says):
    """A line that is no program is refused with its place."""
    done = verb("fuzz", *SOUND, "--replay", corpus("# one", line))

    assert done.returncode == 3
    assert says in complaint(done)


def test_every_flag_is_known_of_torch(verb):
    """The findings file of torch lists every flag of the engine, since each is something that torch does."""
    torch_eager = pytest.importorskip("hooklaw_backends.torch_eager", reason="torch is not installed")
    entries = read(torch_eager.TorchEager.findings, load_rules())

    assert [name for name in TORCH if not entries.of_flag(name)] == []


def test_torch_holds_no_surprise(hooklaw):
    """What torch does otherwise is known, and the exit code is 0."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = hooklaw("fuzz", "--programs", 5000)

    assert done.returncode == 0, done.stdout
    assert "known" in done.stdout


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(hooklaw, name):
    """A broken wrapper of torch is found within seconds, by programs that torch itself does not fail."""
    pytest.importorskip("torch", reason="mutants are torch's, and torch is not installed")
    backend = f"hooklaw_backends.mutants:backend:{name}"
    words = ("--backend", backend, "--stop-after", 8, "--format", "json", "--save", "found")
    done = hooklaw("fuzz", *words)

    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["cpu_seconds"] < 30
    assert hooklaw("fuzz", "--replay", "found").returncode == 0
