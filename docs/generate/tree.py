"""The command tree as plain values: all that completions, man pages and pages are made from."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import typer

import sluicegate
from sluicegate.findings import Rule
from sluicegate_cli import table
from sluicegate_cli.shell import load_command, load_module, reported_rules, root_command


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument; one that repeats is the last."""

    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    required: bool = True
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option with all its names; a flag has no metavar."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """A command line without the program's name, and what it is for."""

    line: str
    what: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group if it has commands below it; the root's path is empty."""

    path: tuple[str, ...]
    summary: str
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...] = ()
    examples: tuple[Example, ...] = ()
    rules: tuple[Rule, ...] = ()
    documents: tuple[str, ...] = ()
    below: tuple[Command, ...] = ()

    @property
    def is_group(self) -> bool:
        """Whether the next word names a command inside this one."""
        return bool(self.below)

    def walk(self) -> Iterator[Command]:
        """This command and everything below it, in the order of the table."""
        yield self
        for command in self.below:
            yield from command.walk()

    def leaves(self) -> Iterator[Command]:
        """Everything below that can be run."""
        return (command for command in self.walk() if not command.is_group)


def read_tree() -> Command:
    """The whole command tree of the installed Sluicegate."""
    _import_all(sluicegate)
    root = root_command()
    return _group((), root.help or "", root)


def _import_all(package: ModuleType) -> None:
    # Rules and errors register themselves on import, and some commands import late: what has
    # not been imported would be missing from the pages.
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _group(path: tuple[str, ...], summary: str, group: Any) -> Command:
    context = _context(group)
    below = []
    for name, text in table.below("".join(f"{word} " for word in path)).items():
        inner = (*path, name)
        if table.is_group(" ".join(inner)):
            below.append(_group(inner, text, group.get_command(context, name)))
        else:
            below.append(_command(inner, text))
    return Command(
        path=path,
        summary=summary,
        help=group.help or "",
        options=_options(group, context),
        below=tuple(below),
    )


def _command(path: tuple[str, ...], summary: str) -> Command:
    command = load_command(" ".join(path))
    module = load_module(" ".join(path))
    context = _context(command)
    return Command(
        path=path,
        summary=summary,
        help=command.help or "",
        options=_options(command, context),
        arguments=tuple(
            _argument(p, context) for p in _visible(command, context) if _is_argument(p)
        ),
        examples=tuple(Example(line, what) for line, what in module.EXAMPLES),
        rules=tuple(reported_rules(module)),
        documents=module.DOCUMENTS,
    )


def _context(command: Any) -> typer.Context:
    # The settings hold the names of the help option, which a bare context would not know.
    return typer.Context(command, **command.context_settings)


def _options(command: Any, context: typer.Context) -> tuple[Option, ...]:
    return tuple(_option(p, context) for p in _visible(command, context) if not _is_argument(p))


def _visible(command: Any, context: typer.Context) -> list[Any]:
    return [p for p in command.get_params(context) if not p.hidden]


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _argument(parameter: Any, context: typer.Context) -> Argument:
    return Argument(
        metavar=_metavar(parameter),
        help=_help(parameter, context),
        choices=_choices(parameter),
        required=parameter.required,
        repeats=parameter.nargs == -1,
    )


def _option(parameter: Any, context: typer.Context) -> Option:
    is_flag = parameter.is_flag or parameter.count
    return Option(
        # Sorted, short ones first: the names of the help option come out of a set.
        names=tuple(sorted((*parameter.opts, *parameter.secondary_opts), key=_length_and_name)),
        help=_help(parameter, context),
        metavar=None if is_flag else _metavar(parameter),
        choices=_choices(parameter),
        repeats=parameter.multiple or parameter.count,
    )


def _length_and_name(name: str) -> tuple[bool, str]:
    return name.startswith("--"), name


def _metavar(parameter: Any) -> str:
    """What stands for the value; an ellipsis is left to whoever prints it."""
    if parameter.metavar:
        return str(parameter.metavar).rstrip(".…").strip("[]")
    return "|".join(_choices(parameter)) or str(parameter.name).strip("_").upper()


def _choices(parameter: Any) -> tuple[str, ...]:
    return tuple(str(choice) for choice in getattr(parameter.type, "choices", ()))


def _help(parameter: Any, context: typer.Context) -> str:
    """The text that `--help` prints for a parameter, with default and range."""
    record = parameter.get_help_record(context)
    return re.sub(r"\s+", " ", record[1] if record else "").strip()
