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
    ("submit clicks --available-now", "the job of a gated stream; it ends when it has caught up"),
    ("submit orders --dry-run", "the command that would run, and the origin of every offset"),
    (
        "submit --app job.py --offsets-store /data/offsets --consumer billing -- --day monday",
        "from the positions of a consumer; words after -- go to the application",
    ),
)
DOCUMENTS = ("sluicegate.submit", "sluicegate.progress")

Words = list[str] | None


def run(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="a stream, or a target with an app; or use --app"),
    ] = None,
    arguments: Annotated[
        Words, typer.Argument(metavar="ARG", help="arguments of the application, after --")
    ] = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="FILE", help="application: job.py or job.jar")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="its checkpoint, verified before the start")
    ] = None,
    offsets_store: Annotated[
        str | None, typer.Option(metavar="DIR", help="offset store that holds its positions")
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="consumer of the store; optional if there is only one"),
    ] = None,
    allow_new_consumer: Annotated[
        bool, typer.Option("--allow-new-consumer", help="allow a consumer without positions")
    ] = False,
    master: Annotated[str | None, typer.Option(metavar="URL", help="as in spark-submit")] = None,
    main_class: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="as in spark-submit")
    ] = None,
    conf: Annotated[
        Words, typer.Option(metavar="K=V", help="Spark setting; secrets are hidden from ps")
    ] = None,
    py_files: Annotated[Words, typer.Option(metavar="FILES", help="as in spark-submit")] = None,
    jars: Annotated[Words, typer.Option(metavar="FILES", help="as in spark-submit")] = None,
    packages: Annotated[Words, typer.Option(metavar="NAMES", help="as in spark-submit")] = None,
    spark_submit: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="spark-submit; default: from $SPARK_HOME, then pip"),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="gated streams only: end when caught up")
    ] = False,
    interval: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="gated streams only: time between epochs, such as 10s"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="gated streams only: take over from a running job")
    ] = False,
    skip_verify: Annotated[
        bool, typer.Option("--skip-verify", help="start even if the checkpoint or chain is damaged")
    ] = False,
    writer_gone: Annotated[
        bool,
        typer.Option("--writer-gone", help="confirm that the job that wrote last has ended"),
    ] = False,
    log_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="directory for the log of the job")
    ] = Path(),
    only_show: Annotated[
        bool, typer.Option("--dry-run", "-n", help="only show what would be run")
    ] = False,
) -> int:
    """Start a Spark application at the right position, and watch it until it ends.

    For gated streams, it runs Sluicegate's own job, or the stream's `app`: the job claims the
    stream, so that no other job can commit, and continues from the head of the chain. After an
    interrupt or termination signal it finishes its epoch.

    Before the start, it checks that Java, spark-submit and the application exist, that the
    checkpoint is intact and has no other writer, and shows what the start will replay. While the
    job runs, its output goes to standard output, Spark's log to a file, its batches to standard
    error. An interrupt or termination signal asks the application to end; a second one kills it.
    Exit code 20 if the application fails, with the end of its log and the recognised cause.

    With `--offsets-store` the application gets the positions of a consumer: PySpark applications
    with `sluicegate.starting_offsets(spark)`, others in the setting
    `spark.sluicegate.startingOffsets`. `sluicegate.commit_offsets(spark)` in a PySpark application
    commits every finished batch, and shows its progress here.
    """
    session = Session.of(ctx)
    stream = None if app else _stream(session, target)
    named = None if app or stream else _named(session, target)
    job = Job(available_now, parse_duration(interval) if interval else 1.0, force, skip_verify)
    _refuse_without_stream(stream, job)
    request = Request(
        app=app or (stream.name if stream else _app_of(named)),
        # With --app there is no target, so the first word also belongs to the application.
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
    """The chosen stream; without a name, the default or only one."""
    streams = session.config.streams
    if target is None and not session.config.targets and len(streams) == 1:
        return next(iter(streams.values()))
    return streams.get(target or session.config.default_stream or "")


def _refuse_without_stream(stream: NamedStream | None, job: Job) -> None:
    if stream is None and replace(job, skip_verify=False) != Job():
        raise UsageError("--available-now, --interval and --force apply to gated streams only")


def _named(session: Session, target: str | None) -> NamedTarget:
    if target is None:
        raise UsageError("nothing to submit", hint="name an application with --app, or a target")
    found = session.config.targets.get(target)
    if found is None:
        known = ", ".join(name for name, each in session.config.targets.items() if each.app)
        raise NotFound(
            f"no target {target!r} with an application; known: {known or 'none'}",
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
    """The place that an option names, by path or target; else that of the target."""
    if option is not None:
        other = session.config.targets.get(option)
        return other.uri if other and other.role == role else option
    return named.uri if named and named.role == role else None
