"""Every way Sluicegate can fail: each class has its exit code, meaning and default hint.

The command line, the man pages and docs/reference/exit-codes.md take the exit codes from here.
Raise the most specific class; `message` states what happened and where, and `hint` the next
command to type if it is more specific than the default of the class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Self

EXIT_DONE = 0
EXIT_DONE_MEANING = "done, or nothing to do"
NEXT, PLACE = "sluicegate: next: ", "sluicegate: place: "
"""How lines begin that say more about an error above them."""


class SluicegateError(Exception):
    """Something failed in a way that no more specific class describes."""

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "unexpected error, or refused by the operating system"
    default_hint: ClassVar[str] = "set SG_DEBUG=1 and run the command again for the full traceback"

    def __init__(self, message: str, *, hint: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.place = place

    def with_notes(self) -> Self:
        """The error, with hint and place in its traceback: for `error_in` in another process."""
        self.add_note(NEXT + self.hint)
        if self.place:
            self.add_note(PLACE + self.place)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark executors, multiprocessing); keyword-only arguments
        # do not survive the default reduction.
        return _rebuild, (type(self), self.message, self.hint, self.place)


def _rebuild(
    cls: type[SluicegateError], message: str, hint: str, place: str | None
) -> SluicegateError:
    return cls(message, hint=hint, place=place)


class StorageFailed(SluicegateError):
    """The operating system refused to read or write (permission, full disk, I/O error)."""

    default_hint = "check the permissions and the free space there, then run: sluicegate doctor"


class ReadOnlyViolation(StorageFailed):
    """A write reached storage that was opened read-only (a dry run, `read_only = true`)."""

    default_hint = "run it without --dry-run, or set read_only = false in sluicegate.toml"


class UsageError(SluicegateError):
    """The command line or the configuration cannot be understood."""

    exit_code = 2
    meaning = "usage: wrong argument, name or configuration"
    default_hint = "run the command with --help"


class InvalidName(UsageError):
    """A name would not be a safe single path component."""

    default_hint = "use letters, digits, '.', '_' and '-', at most 200 bytes, not '.' or '..'"


class ConfigInvalid(UsageError):
    """`sluicegate.toml` has an unknown key, a wrong type or does not parse."""

    default_hint = "see sluicegate.toml(5), or create a commented example with: sluicegate init"


class ProblemsFound(SluicegateError):
    """The command finished and reports findings of severity error."""

    exit_code = 3
    meaning = "finished, problems found"
    default_hint = "each finding names the command that repairs it"


class NotConfirmed(SluicegateError):
    """A change was not confirmed: there is no terminal, or the answer was no."""

    exit_code = 4
    meaning = "confirmation missing or refused; nothing was changed"
    default_hint = "check the plan with --dry-run, then run the command again with --yes"


class ChangeForbidden(NotConfirmed):
    """The configuration forbids changes, or requires a reason for them."""

    default_hint = "see read_only and require_reason in sluicegate.toml"


class Drifted(SluicegateError):
    """The target has changed since the plan was made."""

    exit_code = 5
    meaning = "the target drifted from the plan; nothing was changed"
    default_hint = "create a new plan and review it"


class NotFound(SluicegateError):
    """A target, file or record does not exist."""

    exit_code = 10
    meaning = "not found"
    default_hint = "list the known targets with: sluicegate status"


class Locked(SluicegateError):
    """Another process holds the lock, or a writer is alive."""

    exit_code = 11
    meaning = "locked, or a writer is alive"
    default_hint = "list the holders with: sluicegate locks list"


class Corrupt(SluicegateError):
    """The content of a file violates its format."""

    exit_code = 12
    meaning = "corrupt"
    default_hint = "nothing was changed; keep a copy of the file, then run: sluicegate doctor"


class Fenced(SluicegateError):
    """A newer version, generation or writer supersedes this one."""

    exit_code = 13
    meaning = "fenced: stale version, stale generation or split brain"
    default_hint = "another writer took over; see: sluicegate status"


class StaleVersion(Fenced):
    """The shards were reassigned after the epoch was routed."""

    default_hint = "route the epoch again at the new version, then commit it"


class StaleGeneration(Fenced):
    """The stream was reset, rolled back or repaired: the work of this writer is discarded."""

    default_hint = "stop this job and start it again; see: sluicegate history STREAM"


class SplitBrainCommit(Fenced):
    """Another run has taken over the stream."""

    default_hint = "stop this job; find the new writer with: sluicegate history STREAM"


class UnsupportedFormat(SluicegateError):
    """A format, version or scheme that this release does not know."""

    exit_code = 14
    meaning = "unsupported format"
    default_hint = "upgrade with: pip install --upgrade sluicegate"


class SparkFailed(SluicegateError):
    """Spark could not be started, or its job failed."""

    exit_code = 20
    meaning = "Spark could not run, or its job failed"
    default_hint = "check Java and Spark with: sluicegate doctor"


class Interrupted(SluicegateError):
    """Ctrl-C."""

    exit_code = 130
    meaning = "interrupted (SIGINT)"
    default_hint = "no partial change was left behind; check `sluicegate status`, then retry"


class Terminated(SluicegateError):
    """SIGTERM."""

    exit_code = 143
    meaning = "terminated (SIGTERM)"
    default_hint = "no partial change was left behind; check `sluicegate status`, then retry"


def error_classes(root: type[SluicegateError] = SluicegateError) -> Iterator[type[SluicegateError]]:
    """All error classes, parents before children."""
    yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


def error_in(text: str) -> SluicegateError | None:
    """The first Sluicegate error in a text of Python tracebacks; if some have notes, of those."""
    known = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in error_classes()}
    found = [each for each in _THROWN.finditer(text) if each["kind"] in known]
    # Above an error with notes there may be the one that caused it.
    for each in sorted(found, key=lambda each: each["hint"] is None):
        return known[each["kind"]](each["message"], hint=each["hint"], place=each["place"])
    return None


_THROWN = re.compile(
    r"^(?P<kind>sluicegate\.[\w.]+): (?P<message>.*)"
    rf"(?:\n{NEXT}(?P<hint>.*)(?:\n{PLACE}(?P<place>.*))?)?$",
    re.MULTILINE,
)


def exit_codes() -> dict[int, str]:
    """Every documented exit code with its meaning, ascending."""
    codes = {EXIT_DONE: EXIT_DONE_MEANING}
    for cls in error_classes():
        codes.setdefault(cls.exit_code, cls.meaning)
    return dict(sorted(codes.items()))
