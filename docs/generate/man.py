"""Man pages in plain man(7) macros and plain ASCII, so that every man program can show them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from generate.tree import Argument, Command, Option
from sluicegate import __version__, config
from sluicegate.errors import exit_codes
from sluicegate.findings import Rule, rules
from sluicegate_cli.session import CONFIG_VARIABLE, HOME_VARIABLE
from sluicegate_cli.shell import DEBUG_VARIABLE, NAMES

PROGRAM = NAMES[0]
FINDINGS = f"{PROGRAM}-findings"
"""The page of all finding codes, in section 7."""
_TITLE = "Sluicegate manual"
_ESCAPES = {
    "\\": r"\e",
    # In names, options and paths it must stay the character that can be typed.
    "-": r"\-",
    # At the start of a line it would begin a request.
    "'": r"\(aq",
    "`": r"\(ga",
    '"': r"\(dq",
    "^": r"\(ha",
    "~": r"\(ti",
}
_ABOUT = """
A TARGET is a name from sluicegate.toml or a path; what it is, is detected and said.

Results go to standard output: as tables on a terminal, as tab-separated values otherwise, as one
JSON document with `--json`. Everything else goes to standard error.

A command that changes something shows its plan and asks. `--dry-run` only shows the plan; `--yes`
does not ask, and one of the two is needed where there is no terminal.

The common options may stand before or after the words of the command.

The program is also installed as `sg`. On many systems sg(1) is another program that runs its
arguments under another group, so scripts should say `sluicegate`.
"""
_ENVIRONMENT = (
    (HOME_VARIABLE, "the home that holds the gated streams, unless `--home` names one"),
    (CONFIG_VARIABLE, "the configuration to use, unless `--config` names one"),
    (DEBUG_VARIABLE, "if set, an error is printed with its full traceback"),
    ("NO_COLOR", "if set, nothing is printed in colour"),
    ("JAVA_HOME", "the Java that Spark runs on, instead of the one on PATH"),
)
_FILES = (
    (f"./{config.FILE_NAME}", f"the configuration, see {config.FILE_NAME}(5)"),
    (
        f"./{config.DEFAULT_HOME}",
        "the home, if neither option, environment nor configuration names one",
    ),
)
ABOUT_FINDINGS = """
A check reports findings. A finding has a stable code, which never gets another meaning. An error
needs a person and gives exit code 3. A warning should be read. A note is information.
"""
ABOUT_FILE = f"""
`{config.FILE_NAME}` names the targets and streams of an installation, so that commands take names
instead of paths. It is a TOML file in UTF-8. An unknown key or a wrong type is an error.

The file that `--config` names is used, else the one that {CONFIG_VARIABLE} names, else
`{config.FILE_NAME}` in the working directory, if there is one. Relative paths in it are relative to
the file.

`sluicegate init` writes a file that shows every key in a comment.
"""
TABLES = (
    ("General keys", "", "These keys stand before the first table.", config.GENERAL),
    (
        "Maintain",
        "[maintain]",
        "The table `[maintain]` says what `sluicegate maintain` keeps and does.",
        config.MAINTAIN,
    ),
    (
        "Targets",
        "[targets.orders]",
        "A table `[targets.NAME]` names one Spark checkpoint or offset store.",
        config.TARGET,
    ),
    (
        "Streams",
        "[streams.clicks]",
        "A table `[streams.NAME]` describes a gated stream.",
        config.STREAM,
    ),
)
"""The tables of the configuration: title, how one begins in the file, what it is, its keys."""


def pages(root: Command) -> dict[str, str]:
    """Every man page by its place below `man/`."""
    made = {
        f"man1/{PROGRAM}.1": _overview(root),
        f"man5/{config.FILE_NAME}.5": _configuration(),
        f"man7/{FINDINGS}.7": findings_page(rules()),
    }
    for group in (command for command in root.walk() if command.is_group):
        for command in (inner for inner in group.below if not inner.is_group):
            made[f"man1/{page_name(command)}.1"] = _command(command, group)
    return made


def page_name(command: Command) -> str:
    """The name of a command's page: `locks list` is `sluicegate-locks-list`."""
    return "-".join((PROGRAM, *command.path))


def example_file() -> str:
    """A short configuration, made of the first key of every table."""
    parts = (f"{head}\n{keys[0].name} = {keys[0].example}\n" for _, head, _, keys in TABLES)
    return "\n".join(parts).lstrip()


def findings_page(known: Iterable[Rule]) -> str:
    """Every finding code: how bad it is, and what it means."""
    entries = ((r.code, f"{r.severity.value}: {r.title}. {r.explanation}") for r in known)
    return _page(
        (FINDINGS, 7, "finding codes of Sluicegate"),
        ["DESCRIPTION", *_paragraphs(ABOUT_FINDINGS)],
        ["CODES", *_entries(entries)],
        ["SEE ALSO", *_see_also([(PROGRAM, 1), (f"{PROGRAM}-checkpoint-verify", 1)])],
    )


def _overview(root: Command) -> str:
    return _page(
        (PROGRAM, 1, root.summary),
        ["SYNOPSIS", rf"\fB{PROGRAM}\fR [\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]"],
        ["DESCRIPTION", *_paragraphs(root.help + "\n\n" + _ABOUT)],
        ["COMMANDS", *_commands(root)],
        ["COMMON OPTIONS", *_options(root.options)],
        ["ENVIRONMENT", *_entries(_ENVIRONMENT)],
        ["FILES", *_entries(_FILES)],
        ["EXIT STATUS", *_exit_status()],
        ["SEE ALSO", *_see_also([(config.FILE_NAME, 5), (FINDINGS, 7)])],
    )


def _command(command: Command, group: Command) -> str:
    siblings = [inner for inner in group.below if inner is not command and not inner.is_group]
    related = [(page_name(sibling), 1) for sibling in siblings if group.path]
    words = " ".join((PROGRAM, *command.path))
    synopsis = " ".join(
        [rf"\fB{_escape(words)}\fR [\fIOPTIONS\fR]", *(_usage(a) for a in command.arguments)]
    )
    arguments = ((_italic(a.metavar), a.help) for a in command.arguments)
    others = [(PROGRAM, 1), *related, (config.FILE_NAME, 5)]
    return _page(
        (page_name(command), 1, command.summary),
        ["SYNOPSIS", synopsis],
        ["DESCRIPTION", *_paragraphs(command.help)],
        ["ARGUMENTS", *(line for tag, text in arguments for line in _entry(tag, text))],
        ["OPTIONS", *_options(command.options)],
        ["EXAMPLES", *(line for e in command.examples for line in _example(e.what, e.line))],
        ["FINDINGS", *_codes(command.rules)],
        ["EXIT STATUS", *_exit_status()],
        ["SEE ALSO", *_see_also([*others, *([(FINDINGS, 7)] if command.rules else [])])],
    )


def _codes(reported: Iterable[Rule]) -> list[str]:
    """The codes that a command can report; their page explains them."""
    codes = ", ".join(f"`{rule.code}`" for rule in reported)
    text = f"{codes}. {FINDINGS}(7) explains every code."
    return _paragraphs(text) if codes else []


def _configuration() -> str:
    return _page(
        (config.FILE_NAME, 5, "configuration of Sluicegate"),
        ["DESCRIPTION", *_paragraphs(ABOUT_FILE)],
        *([title.upper(), *_paragraphs(text), *_keys(keys)] for title, _, text, keys in TABLES),
        ["EXAMPLE", *_literal(example_file())],
        ["SEE ALSO", *_see_also([(PROGRAM, 1)])],
    )


def _page(name: tuple[str, int, str], *sections: list[str]) -> str:
    """A page from its name and its sections, heading first; a section without lines is left out."""
    title, number, summary = name
    # Without a date: the same tree must give the same bytes on every day.
    lines = [
        f'.TH "{_escape(title.upper())}" "{number}" "" "{PROGRAM} {__version__}" "{_TITLE}"',
        # A command that is broken at a hyphen cannot be copied.
        ".nh",
        ".ad l",
        ".SH NAME",
        rf"{_escape(title)} \- {_escape(summary.rstrip('.'))}",
    ]
    for heading, *body in sections:
        if body:
            lines += [f'.SH "{heading}"', *body]
    return "\n".join(lines) + "\n"


def _commands(root: Command) -> list[str]:
    """The commands of every group below a heading of its own, those without a group first."""
    lines = []
    for group in (command for command in root.walk() if command.is_group):
        leaves = [inner for inner in group.below if not inner.is_group]
        if group.path and leaves:
            lines += [rf'.SS "{_escape(" ".join(group.path))} \- {_escape(group.summary)}"']
        for command in leaves:
            lines += [".TP", f".BR {_escape(page_name(command))} (1)", _text(command.summary)]
    return lines


def _options(options: Iterable[Option]) -> list[str]:
    lines = []
    for option in options:
        names = ", ".join(_bold(name) for name in option.names)
        value = f" {_italic(option.metavar)}" if option.metavar else ""
        again = " (may be given more than once)" if option.repeats else ""
        lines += _entry(names + value, option.help + again)
    return lines


def _usage(argument: Argument) -> str:
    shown = _italic(argument.metavar) + (" ..." if argument.repeats else "")
    return shown if argument.required else f"[{shown}]"


def _keys(keys: Iterable[config.Key]) -> list[str]:
    lines = []
    for key in keys:
        allowed = f" (one of: {', '.join(key.choices)})" if key.choices else ""
        tag = f"{_bold(key.name)} = {_italic(key.example)}"
        lines += _entry(tag, key.doc + allowed)
    return lines


def _exit_status() -> list[str]:
    known = _entries((str(code), meaning) for code, meaning in exit_codes().items())
    return [*known, *_paragraphs("Any other code means failure.")]


def _see_also(names: list[tuple[str, int]]) -> list[str]:
    ends = [","] * (len(names) - 1) + [""]
    return [
        f".BR {_escape(name)} ({section}){end}"
        for (name, section), end in zip(names, ends, strict=True)
    ]


def _example(what: str, line: str) -> list[str]:
    end = ":" if what[-1].isalnum() else ""
    return [*_paragraphs(what[0].upper() + what[1:] + end), *_literal(f"{PROGRAM} {line}")]


def _entries(entries: Iterable[tuple[str, str]]) -> list[str]:
    return [line for tag, text in entries for line in _entry(_bold(tag), text)]


def _entry(tag: str, text: str) -> list[str]:
    return [".TP", tag, _text(text)]


def _paragraphs(text: str) -> list[str]:
    parts = re.split(r"\n\s*\n", text.strip())
    return [line for part in parts for line in (".PP", _text(part))]


def _literal(text: str) -> list[str]:
    lines = [_shielded(_escape(line)) for line in text.rstrip("\n").split("\n")]
    return [".PP", ".RS 4", ".nf", *lines, ".fi", ".RE"]


def _text(text: str) -> str:
    """Running text on one line, with `code` in bold."""
    pieces = re.split(r"`([^`]+)`", " ".join(text.split()))
    marked = (_bold(p) if i % 2 else _escape(p) for i, p in enumerate(pieces))
    return _shielded("".join(marked))


def _shielded(line: str) -> str:
    """A line that is never empty and never taken for a request."""
    return rf"\&{line}" if line.startswith(".") or not line else line


def _bold(text: str) -> str:
    return rf"\fB{_escape(text)}\fR"


def _italic(text: str) -> str:
    return rf"\fI{_escape(text)}\fR"


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) if c.isascii() else rf"\[u{ord(c):04X}]" for c in text)
