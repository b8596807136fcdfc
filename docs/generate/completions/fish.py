"""The completion for fish: one `complete` per command, option and argument."""

from __future__ import annotations

import re

from generate.completions.values import MADE_BY, Kind, kind_of
from generate.tree import Argument, Command, Option
from sluicegate_cli.shell import NAMES

_ENGINE = r"""
# Whether the words so far name this command and, if told, its positions from first to last.
function __sluicegate_at -a wanted first last
    set -l path ''
    set -l position 0
    set -l is_value 0
    set -l is_literal 0
    for word in (commandline -opc)[2..-1]
        if test $is_value = 1
            set is_value 0
        else if test $is_literal = 0; and test "$word" = --
            set is_literal 1
        else if test $is_literal = 0; and string match -q -- '-?*' $word
            __sluicegate_takes_value "$path $word"; and set is_value 1
        else if __sluicegate_is_group $path
            set path (string trim -- "$path $word")
            set is_literal 0
        else
            set position (math $position + 1)
        end
    end
    test "$path" = "$wanted"
    and test $position -ge "0$first"
    and test -z "$last" -o $position -le "0$last"
end
"""
_DIRECTORIES = "(__fish_complete_directories (commandline -ct))"


def fish(root: Command) -> str:
    """A fish completion."""
    name, *twins = NAMES
    commands = list(root.walk())
    groups = [" ".join(command.path) for command in commands if command.is_group]
    valued = [
        f"{' '.join(command.path)} {option_name}"
        for command in commands
        for option in command.options
        for option_name in option.names
        if option.metavar
    ]
    return "\n".join(
        [
            MADE_BY + _ENGINE,
            _contains("__sluicegate_is_group", groups),
            _contains("__sluicegate_takes_value", valued),
            f"complete -c {name} -f",
            *(f"complete -c {name} {line}" for command in commands for line in _lines(command)),
            *(f"complete -c {twin} -w {name}" for twin in twins),
            "",
        ]
    )


def _contains(function: str, words: list[str]) -> str:
    listed = "".join(f" \\\n        {_quote(word)}" for word in words)
    return f'function {function} -a wanted\n    contains -- "$wanted"{listed}\nend\n'


def _lines(command: Command) -> list[str]:
    at = f'__sluicegate_at "{" ".join(command.path)}"'
    here = f"-n {_quote(at)}"
    lines = [
        f"{here} -a {_quote(inner.path[-1])} -d {_quote(inner.summary)}" for inner in command.below
    ]
    for position, argument in enumerate(command.arguments):
        span = f"{position}" if argument.repeats else f"{position} {position}"
        if offered := _offered(argument):
            text = f" -d {_quote(argument.metavar)}" if argument.choices else ""
            lines.append(f"-n {_quote(f'{at} {span}')} {offered}{text}")
    for option in command.options:
        names = " ".join(
            f"-{'l' if n.startswith('--') else 's'} {n.lstrip('-')}" for n in option.names
        )
        value = f" -r {_offered(option) or '-f'}" if option.metavar else ""
        lines.append(f"{here} {names}{value} -d {_quote(option.help)}")
    return lines


def _offered(value: Argument | Option) -> str:
    match kind_of(value):
        case Kind.WORDS:
            choices = " ".join(_quote(choice) for choice in value.choices)
            return f"-f -a {_quote(choices)}"
        case Kind.DIRECTORIES:
            return f"-f -a {_quote(_DIRECTORIES)}"
        case Kind.FILES:
            return "-F"
        case Kind.TEXT:
            return ""


def _quote(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.,:=/-]+", text):
        return text
    return "'" + re.sub(r"[\\']", r"\\\g<0>", text) + "'"
