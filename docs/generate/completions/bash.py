"""The completion for bash; it needs no bash-completion package."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from generate.completions.values import MADE_BY, Kind, kind_of, quoted
from generate.tree import Command
from sluicegate_cli.shell import NAMES

_ENGINE = r"""
_sluicegate() {
    local given=${COMP_WORDS[COMP_CWORD]} words=() word glue='' current lead=''
    local path='' position=0 slot='' literal='' group options kind choices
    COMPREPLY=()
    # Bash breaks words at = and :, the command does not.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 0 && ($glue || $word == [=:]*) ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == *[=:] ]] && glue=1 || glue=''
    done
    [[ $given == [=:]* ]] && given=''
    current=${words[${#words[@]}-1]}

    for word in "${words[@]:0:${#words[@]}-1}"; do
        if [[ $slot ]]; then
            slot=''
        elif [[ $word == -- && ! $literal ]]; then
            literal=1
        elif [[ $word == -?* && ! $literal ]]; then
            _sluicegate_at "$path" "$word"
            slot=${kind:+$word}
        else
            _sluicegate_at "$path" 0
            if [[ $group ]]; then
                path="${path:+$path }$word" position=0 literal=''
            else
                position=$((position + 1))
            fi
        fi
    done

    if [[ $slot ]]; then
        _sluicegate_at "$path" "$slot"
    elif [[ $current == --*=* && ! $literal ]]; then
        lead=${current%%=*}=
        _sluicegate_at "$path" "${current%%=*}"
    else
        _sluicegate_at "$path" "$position"
        if [[ ! $literal && ($current == -* || ! $kind) ]]; then
            kind=words choices=("${options[@]}")
        fi
    fi
    case $kind in
    files) compopt -o default 2>/dev/null ;;
    directories) compopt -o dirnames 2>/dev/null ;;
    words)
        for word in "${choices[@]}"; do
            word=$lead$word
            [[ $word == "$current"* ]] && COMPREPLY+=("${word#"${current%"$given"}"}")
        done
        ;;
    esac
}
"""


def bash(root: Command) -> str:
    """A bash completion that needs no bash-completion package."""
    lines = ["_sluicegate_at() {", "    group='' options=() kind='' choices=()", "    case $1 in"]
    for command in root.walk():
        names = quoted(name for option in command.options for name in option.names)
        lines += [
            f"    {shlex.quote(' '.join(command.path))})",
            f"        {'group=1 ' if command.is_group else ''}options=({names})",
            "        case $2 in",
            *(f"        {slot}) {what} ;;" for slot, what in _slots(command)),
            "        esac",
            "        ;;",
        ]
    lines += ["    esac", "}"]
    register = f"complete -F _sluicegate {' '.join(NAMES)}\n"
    return MADE_BY + _ENGINE + "\n" + "\n".join(lines) + "\n\n" + register


def _slots(command: Command) -> list[tuple[str, str]]:
    slots = []
    if command.is_group:
        slots.append(("0", _value(Kind.WORDS, [inner.path[-1] for inner in command.below])))
    for position, argument in enumerate(command.arguments):
        pattern = "[0-9]*" if argument.repeats else str(position)
        slots.append((pattern, _value(kind_of(argument), argument.choices)))
    for option in command.options:
        if option.metavar:
            value = _value(kind_of(option), option.choices)
            slots.append((" | ".join(option.names), value))
    return slots


def _value(kind: Kind, choices: Sequence[str]) -> str:
    return f"kind={kind.value}" + (f" choices=({quoted(choices)})" if choices else "")
