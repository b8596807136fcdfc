from __future__ import annotations

import os
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.config import (
    GENERAL,
    MAINTAIN,
    STREAM,
    TARGET,
    Config,
    example,
    load_config,
    parse_config,
)
from sluicegate.errors import ConfigInvalid, NotFound, SluicegateError

WHERE = Path("/etc/sg/sluicegate.toml")


def parse(text: str) -> Config:
    return parse_config(text.encode(), WHERE)


def test_a_full_configuration() -> None:
    config = parse("""
        home = "streams"
        default_stream = "clicks"
        read_only = true
        require_reason = true
        [targets.orders]
        checkpoint = "file:///data/orders"
        sink = "out"
        [targets.billing]
        offsets = "/data/billing"
        [streams.clicks]
        source = "kafka://broker:9092/clicks"
        stamp = ["p", "n", "s"]
        key = "user"
        shards = 8
        aggregates = { clicks = "count" }
        on_reject = "fail"
    """)
    assert config.home == "/etc/sg/streams"
    assert (config.read_only, config.require_reason) == (True, True)
    orders, billing = config.targets["orders"], config.targets["billing"]
    assert (orders.role, orders.uri, orders.sink) == (
        "checkpoint",
        "file:///data/orders",
        "/etc/sg/out",
    )
    assert (billing.role, billing.uri) == ("offsets", "/data/billing")
    clicks = config.streams["clicks"]
    assert (clicks.shards, clicks.stamp, clicks.on_reject) == (8, ("p", "n", "s"), "fail")


def test_nothing_is_a_valid_configuration() -> None:
    assert parse("") == Config(path=WHERE)


WRONG = {
    'hoem = "x"': "unknown key hoem; did you mean 'home'?",
    "target = 1": "unknown key target; did you mean 'targets'?",
    "zzz = 1": "unknown key zzz; known: home, default_stream, read_only, require_reason, audit_log",
    '[targets.orders]\nchekpoint = "x"': "targets.orders.chekpoint; did you mean 'checkpoint'?",
    "home = 3": "home must be text in quotes, not 3",
    "read_only = 1": "read_only must be true or false, not 1",
    '[streams.a]\nsource = "x"\nshards = true': "streams.a.shards must be an integer, not True",
    '[streams.a]\nsource = "x"\nshards = 0': "streams.a.shards must be at least 1",
    '[streams.a]\nsource = "x"\nstamp = ["p"]': "streams.a.stamp needs three columns",
    '[streams.a]\nsource = "x"\nstamp = [1]': "streams.a.stamp must be a list of texts",
    '[streams.a]\nsource = "x"\non_reject = "no"': 'on_reject must be "keep" or "fail", not "no"',
    '[streams.a]\nkey = "x"': "streams.a needs a source",
    '[targets.a]\nsink = "x"': "targets.a needs exactly one of: checkpoint, offsets",
    '[targets.a]\ncheckpoint = "x"\noffsets = "y"': "targets.a needs exactly one of",
    'targets = "x"': "targets must be tables like [targets.NAME]",
    "[targets]\na = 1": "targets.a must be a table: [targets.a]",
    '[targets."../x"]\ncheckpoint = "x"': "the name '../x' contains a path separator",
    '[targets."a\\u001b[2J"]\ncheckpoint = "x"': "contains a control",
    '[targets.a]\ncheckpoint="x"\n[streams.a]\nsource="x"': "both a target and a stream",
    '[streams.clicks]\nsource="x"\n[default]\n': "unknown key default",
    'default_stream = "click"\n[streams.clicks]\nsource = "x"': "did you mean 'clicks'?",
    "maintain = 1": "maintain must be a table: [maintain]",
    '[maintain]\nkeep = "7"': "maintain.keep: '7' is not a duration",
    "[maintain]\nkeep = 7": "maintain.keep must be text in quotes, not 7",
    "[maintain]\nkeep_snapshots = 0": "maintain.keep_snapshots must be at least 1",
    "[maintain]\nkep = 1": "unknown key maintain.kep; did you mean 'keep'?",
    "home = \n": "line 1, column 8",
    "a = 1\na = 2\n": "line 2",
}


@pytest.mark.parametrize(("text", "expected"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_is_named(text: str, expected: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    assert expected in caught.value.message
    assert caught.value.message.startswith("/etc/sg/sluicegate.toml: ")
    assert caught.value.exit_code == 2


def test_bytes_that_are_not_text() -> None:
    with pytest.raises(ConfigInvalid, match="byte 8: not UTF-8"):
        parse_config(b'home = "\xff"', WHERE)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(ConfigInvalid):
        parse("a = " + "[" * 100_000)


@given(some.binary(max_size=200) | some.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_configuration_or_our_error(data: bytes) -> None:
    try:
        parse_config(data, WHERE)
    except SluicegateError as e:
        assert e.place == str(WHERE)


def test_the_example_sets_nothing_and_every_line_of_it_works() -> None:
    assert parse(example()) == Config(path=WHERE)
    lines = [line.removeprefix("# ") for line in example().splitlines() if " = " in line]
    keys = [key.name for key in (*GENERAL, *MAINTAIN, *TARGET, *STREAM)]
    assert [line.split(" = ")[0] for line in lines] == keys
    for line in lines:
        assert tomli.loads(line)


def test_the_example_uncommented_is_accepted() -> None:
    active = [
        line.removeprefix("# ")
        for line in example().splitlines()
        if " = " in line or line.startswith("# [")
    ]
    # A target has one place, and the example shows both keys.
    text = "\n".join(line for line in active if not line.startswith("offsets"))
    config = parse(text)
    assert config.default_stream == "clicks"
    assert config.targets["orders"].app == "/etc/sg/jobs/orders.py"


class TestLoading:
    def test_without_a_file_all_is_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load_config(None) == Config()

    def test_the_file_here_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("sluicegate.toml").write_text("read_only = true")
        assert load_config(None).read_only

    def test_a_named_file_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="no configuration"):
            load_config(tmp_path / "no.toml")

    def test_a_link_is_followed_since_mounted_configuration_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "real.toml").write_text("read_only = true")
        os.symlink(tmp_path / "real.toml", tmp_path / "link.toml")
        assert load_config(tmp_path / "link.toml").read_only

    def test_a_huge_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "big.toml").write_bytes(b"#" * (2 << 20))
        with pytest.raises(SluicegateError, match="larger than"):
            load_config(tmp_path / "big.toml")

    def test_a_link_that_leads_nowhere_is_not_no_configuration(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may set read_only = true on a disk that is not mounted."""
        monkeypatch.chdir(tmp_path)
        os.symlink(tmp_path / "unmounted" / "x.toml", "sluicegate.toml")
        with pytest.raises(NotFound):
            load_config(None)

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        os.symlink("loop.toml", tmp_path / "loop.toml")
        with pytest.raises(SluicegateError):
            load_config(tmp_path / "loop.toml")


@pytest.mark.parametrize(
    "text", ["x = " + "9" * 5000, 'home = "~no-such-user/x"', "x = 1e99999", "a = 2020-99-99"]
)
def test_values_that_break_parsers(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse(text)
