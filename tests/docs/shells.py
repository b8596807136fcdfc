"""Real shells that have loaded a completion, with somebody who types a line and presses TAB."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest

FILES = {"bash": "sluicegate.bash", "zsh": "_sluicegate", "fish": "sluicegate.fish"}
# The prompt is `ready`. After a TAB the shell says what is in its line editor; zsh must do so in
# the same widget, because it lists nothing while more keys are waiting.
_ZSH = r"""
PS1=ready
setopt no_beep no_list_ambiguous
autoload -Uz compinit
compinit -D -u
tab() { zle expand-or-complete; zle -R; zle -I; print -r -- "<<$BUFFER>>"; BUFFER= }
zle -N tab
bindkey '^I' tab
"""
_START = {
    "bash": r"""
        PS1=ready
        source "$SCRIPT"
        bind 'set show-all-if-ambiguous on'
        bind 'set page-completions off'
        bind 'set enable-bracketed-paste off'
        bind '"\C-xc": complete'
        bind -x '"\C-xt": printf "<<%s>>\n" "$READLINE_LINE"; READLINE_LINE='
        bind '"\t": "\C-xc\C-xt"'
    """,
    "zsh": "fpath=($SCRIPT:h $fpath)" + _ZSH,
    "zsh sourced": _ZSH + "source $SCRIPT",
}
SHELLS = [*_START, "fish"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a TAB made of a line, and what was listed below it."""

    line: str
    listed: str


def need(program: str) -> str:
    """The path of a program; a test without it is skipped, but on CI it fails."""
    path = shutil.which(program)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed")
    return path


def press_tab(shell: str, scripts: Path, lines: list[str], cwd: Path) -> dict[str, Answer]:
    """Type every line in a real shell and press TAB once; `scripts` has the completions."""
    name = shell.partition(" ")[0]
    program, script = need(name), scripts / FILES[name]
    if shell == "fish":
        return _ask_fish(program, script, lines, cwd)
    start = cwd / ".zshrc"
    start.write_text(f"SCRIPT={shlex.quote(str(script))}\n{_START[shell]}\n")
    process = pexpect.spawn(
        program,
        ["--rcfile", str(start), "-i"] if shell == "bash" else ["-d", "-i"],
        cwd=str(cwd),
        env={**os.environ, "TERM": "dumb", "LC_ALL": "C.UTF-8", "ZDOTDIR": str(cwd)},
        dimensions=(100, 250),
        timeout=60,
        encoding="utf-8",
    )
    process.delaybeforesend = None
    try:
        return {line: _ask(process, line) for line in lines}
    finally:
        process.close(force=True)


def _ask(process: pexpect.spawn[str], line: str) -> Answer:
    process.expect_exact("ready")
    process.send(f"{line}\t")
    process.expect_exact("<<")
    program = line.partition(" ")[0]
    shown = [text for text in str(process.before).splitlines() if program not in text]
    process.expect_exact(">>")
    return Answer(str(process.before), "\n".join(shown))


def _ask_fish(program: str, script: Path, lines: list[str], cwd: Path) -> dict[str, Answer]:
    code = f"source {shlex.quote(str(script))}; for line in $argv; complete -C $line; echo =; end"
    done = subprocess.run(
        [program, "--no-config", "-c", code, *lines],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    answers = zip(lines, done.stdout.split("=\n"), strict=False)
    return {line: _filled_in(line, listed) for line, listed in answers}


def _filled_in(line: str, listed: str) -> Answer:
    """What fish would make of a line at the prompt, where it fills in an only candidate."""
    candidates = [text.partition("\t")[0] for text in listed.splitlines()]
    if len(candidates) != 1:
        return Answer(line, listed)
    before = line[: line.rindex(" ") + 1]
    end = "" if candidates[0].endswith("/") else " "
    return Answer(before + candidates[0] + end, listed)
