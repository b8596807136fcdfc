"""The completion for zsh: one function per command, which calls `_arguments`."""

from __future__ import annotations

import re
import shlex

from generate.completions.values import MADE_BY, Kind, kind_of, quoted
from generate.tree import Argument, Command, Option
from sluicegate_cli.shell import NAMES

# The pattern makes the options of a group end at the name of the command.
_GROUP = r"""
{name}() {{
    local curcontext=$curcontext state state_descr line ret=1
    local -A opt_args
    local -a commands=(
{commands}
    )
    _arguments -C -S -A '-*' \
{specs} \
        '1: :->command' \
        '*:: :->rest' && ret=0
    case $state in
    command) _describe -t commands command commands && ret=0 ;;
    rest) (($+functions[{name}_$words[1]])) && {name}_$words[1] && ret=0 ;;
    esac
    return ret
}}
"""
_COMMAND = r"""
{name}() {{
    _arguments -S \
{specs}
}}
"""
# Once as an autoloaded function, whose file is its body, and once as a file that is sourced.
_END = r"""
if [[ $funcstack[1] == _sluicegate ]]; then
    _sluicegate "$@"
else
    compdef _sluicegate {programs}
fi
"""


def zsh(root: Command) -> str:
    """A zsh completion, for a directory of `fpath` or to be sourced after `compinit`."""
    functions = []
    for command in root.walk():
        specs = [spec for option in command.options for spec in _option(option)]
        specs += [_argument(i, argument) for i, argument in enumerate(command.arguments, 1)]
        functions.append(
            (_GROUP if command.is_group else _COMMAND).format(
                name="_".join(("_sluicegate", *command.path)),
                specs=" \\\n".join(f"        {shlex.quote(spec)}" for spec in specs),
                commands="\n".join(f"        {_described(inner)}" for inner in command.below),
            )
        )
    programs = " ".join(NAMES)
    end = _END.format(programs=programs)
    return f"#compdef {programs}\n{MADE_BY}" + "".join(functions) + end


def _described(command: Command) -> str:
    return shlex.quote(_escape(command.path[-1], ":") + ":" + _escape(command.summary, ""))


def _option(option: Option) -> list[str]:
    others = "*" if option.repeats else f"({' '.join(option.names)})"
    text = f"[{_escape(option.help, '[]:')}]"
    if option.metavar is None:
        return [f"{others}{name}{text}" for name in option.names]
    value = f":{_escape(option.metavar, ':')}:{_action(option)}"
    return [f"{others}{n}{'=' if n.startswith('--') else '+'}{text}{value}" for n in option.names]


def _argument(position: int, argument: Argument) -> str:
    where = "*" if argument.repeats else f"{position}" if argument.required else f"{position}:"
    return f"{where}:{_escape(argument.help, ':')}:{_action(argument)}"


def _action(value: Argument | Option) -> str:
    match kind_of(value):
        case Kind.WORDS:
            return f"({_escape(quoted(value.choices), ':')})"
        case Kind.FILES:
            return "_files"
        case Kind.DIRECTORIES:
            return "_directories"
        case Kind.TEXT:
            return " "


def _escape(text: str, special: str) -> str:
    """Put a backslash before every special character and every backslash."""
    return re.sub(rf"[\\{re.escape(special)}]", r"\\\g<0>", text)
