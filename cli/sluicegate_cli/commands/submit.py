"""`sluicegate submit`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from sluicegate.config import NamedStream, NamedTarget
from sluicegate.errors import EXIT_DONE, ChangeForbidden, NotFound, UsageError
from sluicegate.spark.submit.command import Request, parse_conf, parse_list
from sluicegate.spark.submit.preflight import Ready, prepare
from sluicegate.spark.submit.run import submit
from sluicegate.spark.submit.stream import Job, is_elsewhere, prepare_stream, write_package
from sluicegate.units import parse_duration
from sluicegate_cli.output import Mode, next_command
from sluicegate_cli.output.submit import display, failure_lines, outcome_view, ready_view, summary
from sluicegate_cli.session import Session

EXAMPLES = (
    ("submit --app job.py --checkpoint /data/orders/checkpoint", "after checking the checkpoint"),
    ("submit clicks --available-now", "the job of a gated stream, until all is read"),
    ("submit orders --dry-run", "what would be run, and where every offset comes from"),
    (
        "submit --app job.py --offsets-store /data/offsets --consumer billing -- --day monday",
        "from the positions of a consumer; the rest is for the application",
    ),
)

Words = list[str] | None


def run(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="stream, or name of a target with an app; or --app"),
    ] = None,
    arguments: Annotated[
        Words, typer.Argument(metavar="ARG", help="arguments of the application, after --")
    ] = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="FILE", help="application: job.py or job.jar")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="checkpoint it uses, to be checked first")
    ] = None,
    offsets_store: Annotated[
        str | None, typer.Option(metavar="DIR", help="offset store that holds its positions")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="consumer; may be left out if only one")
    ] = None,
    allow_new_consumer: Annotated[
        bool, typer.Option("--allow-new-consumer", help="even if it has no positions yet")
    ] = False,
    master: Annotated[str | None, typer.Option(metavar="URL", help="as in spark-submit")] = None,
    main_class: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="as in spark-submit")
    ] = None,
    conf: Annotated[
        Words, typer.Option(metavar="K=V", help="Spark setting; secrets do not show in ps")
    ] = None,
    py_files: Annotated[Words, typer.Option(metavar="FILES", help="as in spark-submit")] = None,
    jars: Annotated[Words, typer.Option(metavar="FILES", help="as in spark-submit")] = None,
    packages: Annotated[Words, typer.Option(metavar="NAMES", help="as in spark-submit")] = None,
    spark_submit: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="spark-submit to use; else $SPARK_HOME's, else pip's"),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="stream: end when all that is there is read")
    ] = False,
    interval: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="stream: from one epoch to the next, such as 10s"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="stream: take over from a job that runs")
    ] = False,
    skip_verify: Annotated[
        bool, typer.Option("--skip-verify", help="even if the checkpoint or chain is not sound")
    ] = False,
    writer_gone: Annotated[
        bool,
        typer.Option("--writer-gone", help="you know that the job that wrote last has ended"),
    ] = False,
    log_dir: Annotated[Path, typer.Option(metavar="DIR", help="where the job's log goes")] = Path(),
    only_show: Annotated[
        bool, typer.Option("--dry-run", "-n", help="only show what would be run")
    ] = False,
) -> int:
    """Start a Spark application from the right place, and stay with it until it ends.

    Of a gated stream it is Sluicegate's own job, or the stream's `app`: it claims the stream, so
    that no other can commit, and goes on from the head of the chain. An interrupt or termination
    signal lets it finish its epoch.

    Before: Java, spark-submit and the application are there; the checkpoint is sound, nothing
    writes to it, and what the start will replay is said. While it runs: its output goes to
    standard output, Spark's log to a file, its batches to standard error. An interrupt or
    termination signal asks the application to end; a second one kills it. Exit code 20 if the
    application fails, with the end of its log and the cause that is recognised in it.

    With `--offsets-store` the application gets the positions of a consumer: PySpark applications
    with `sluicegate.starting_offsets(spark)`, others in the setting
    `spark.sluicegate.startingOffsets`. `sluicegate.commit_offsets(spark)` in a PySpark application
    commits every finished batch, and lets its progress be shown here.
    """
    session = Session.of(ctx)
    stream = None if app else _stream(session, target)
    named = None if app or stream else _named(session, target)
    job = Job(available_now, parse_duration(interval) if interval else 1.0, force, skip_verify)
    _refuse_without_stream(stream, job)
    request = Request(
        app=app or (stream.name if stream else _app_of(named)),
        # With --app there is no target, so the first word is the application's, too.
        arguments=(*([target] if app and target is not None else []), *(arguments or ())),
        master=master,
        main_class=main_class,
        conf=parse_conf(conf or ()),
        py_files=parse_list(py_files or ()),
        jars=parse_list(jars or ()),
        packages=parse_list(packages or ()),
        spark_submit=spark_submit,
        checkpoint=_place(session, checkpoint, named, "checkpoint"),
        store=_place(session, offsets_store, named, "offsets"),
        consumer=consumer,
        allow_new_consumer=allow_new_consumer,
        skip_verify=skip_verify,
        writer_gone=writer_gone,
    )
    if stream:
        return _submit_stream(session, stream, job, request, log_dir, only_show=only_show)
    return _submit(session, prepare(request), log_dir, only_show=only_show)


def _submit(session: Session, ready: Ready, log_dir: Path, *, only_show: bool) -> int:
    for note in ready.notes:
        session.sink.note(f"note: {ready.secrets.hide(note)}")
    if only_show:
        session.sink.show(ready_view(ready))
        return EXIT_DONE
    return _start(session, ready, log_dir)


def _submit_stream(
    session: Session,
    stream: NamedStream,
    job: Job,
    request: Request,
    log_dir: Path,
    *,
    only_show: bool,
) -> int:
    assert session.config.path
    with TemporaryDirectory(prefix="sluicegate-submit-") as directory:
        if is_elsewhere(request):
            package = Path(directory) / "sluicegate.zip"
            write_package(package)
            request = replace(request, py_files=(*request.py_files, str(package)))
        found = prepare_stream(stream, session.home, session.config.path, job, request)
        session.sink.note(f"{stream.name}: {found.describe()}")
        return _submit(session, found.ready, log_dir, only_show=only_show)


def _start(session: Session, ready: Ready, log_dir: Path) -> int:
    if session.config.read_only:
        where = session.config.path
        raise ChangeForbidden(f"{where} sets read_only = true, so no job may be started")
    if ready.checkpoint:
        session.sink.note(f"{ready.checkpoint.path}: {ready.checkpoint.describe()}")
    is_json = session.sink.mode is Mode.JSON
    screen = display(session.sink, ready.starting.consumer if ready.starting else None)
    try:
        output = None if is_json else sys.stdout.fileno()
        outcome = submit(ready, screen, log_directory=log_dir, output=output)
    finally:
        screen.close()
    if is_json:
        session.sink.show(outcome_view(ready, outcome))
    else:
        for line in failure_lines(outcome):
            session.sink.note(line)
    if error := outcome.error(next_command):
        raise error
    if not is_json:
        session.sink.note(summary(outcome))
    return EXIT_DONE


def _stream(session: Session, target: str | None) -> NamedStream | None:
    """The stream that is meant, also without a word if there is a default or only one."""
    streams = session.config.streams
    if target is None and not session.config.targets and len(streams) == 1:
        return next(iter(streams.values()))
    return streams.get(target or session.config.default_stream or "")


def _refuse_without_stream(stream: NamedStream | None, job: Job) -> None:
    if stream is None and replace(job, skip_verify=False) != Job():
        raise UsageError("--available-now, --interval and --force are for gated streams")


def _named(session: Session, target: str | None) -> NamedTarget:
    if target is None:
        raise UsageError("nothing to submit", hint="name an application with --app, or a target")
    found = session.config.targets.get(target)
    if found is None:
        known = ", ".join(name for name, each in session.config.targets.items() if each.app)
        raise NotFound(
            f"there is no target {target!r} with an application; known: {known or 'none'}",
            hint="name an application with --app; its arguments go after --",
        )
    return found


def _app_of(named: NamedTarget | None) -> str:
    if named is None or named.app is None:
        name = named.name if named else ""
        raise UsageError(
            f"target {name} has no application",
            hint=f"add app = to [targets.{name}], or name one with --app",
        )
    return named.app


def _place(
    session: Session, option: str | None, named: NamedTarget | None, role: str
) -> str | None:
    """The place that an option names, by path or target; else what the target is."""
    if option is not None:
        other = session.config.targets.get(option)
        return other.uri if other and other.role == role else option
    return named.uri if named and named.role == role else None
