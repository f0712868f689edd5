"""A history in an object store, over HTTP: pyarrow's own S3 client against a store on loopback.

With SPECSWEEP_TEST_S3=HOST:PORT (and keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) what needs no rights of its
own runs against that store, e.g. moto or MinIO, in a bucket named `bucket` that is there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.history.history_place import place_of
from orchestrator.history.history_store import HistoryStore
from tests.fakes.object_store import ObjectStore, serving
from tests.orchestrator.history.test_history_store import MARK, night
from tests.orchestrator.nightly.test_nightly_command import Bench

SECRET = "c2VjcmV0/LXRlbGw+bm9ib2R5"
OTHER_STORE = os.environ.get("SPECSWEEP_TEST_S3", "")


@pytest.fixture(scope="module")
def stand_in() -> Iterator[ObjectStore]:
    with serving(ObjectStore(page=7)) as store:
        yield store


@pytest.fixture
def own(stand_in: ObjectStore) -> ObjectStore:
    """Looked into from behind, and with rights by key."""
    if OTHER_STORE:
        pytest.skip("another store has rights of its own")
    stand_in.asked.clear()
    return stand_in


@pytest.fixture
def uri(stand_in: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a folder that nobody else has, with the key of a writer in the environment."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if not OTHER_STORE:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRITER")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return address(OTHER_STORE or stand_in.url, f"bucket/team {secrets.token_hex(4)}/nights")


def address(at: str, path: str, key: str = "") -> str:
    return f"s3://{key}{path.replace(' ', '%20')}?endpoint_override={at}&scheme=http&region=us-east-1"


def test_what_is_kept_in_an_object_store_is_read_also_over_several_pages_of_a_listing(uri: str) -> None:
    store = HistoryStore.at(uri)
    assert not store.exists()
    store.prepare()
    assert (store.exists(), store.read().nights) == (True, ())
    nights = [night(at=f"2026-11-{day:02d}T02:15:00.000+00:00", run=f"runs/{day}") for day in range(1, 17)]
    for one in nights:
        store.append(one)
    store.mark(MARK)
    found = HistoryStore.at(uri).read()

    assert found.nights == tuple(nights)
    assert (found.marks, found.skipped) == ((MARK,), ())


def test_two_writers_at_once_lose_nothing_and_a_reader_beside_them_sees_whole_nights(uri: str) -> None:
    """Each with a client of its own; of a store they know nothing of each other, be they processes or not."""
    runs = [f"runs/{writer}-{i}" for writer in ("one", "two") for i in range(6)]

    def write(writer: str) -> None:
        store = HistoryStore.at(uri)
        for run in runs:
            if run.startswith(f"runs/{writer}-"):
                store.append(night(run=run))

    store, seen = HistoryStore.at(uri), [0]
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, writer) for writer in ("one", "two")]
        while not all(writer.done() for writer in writers):
            read = store.read()
            seen.append(len(read.nights))
            assert (read.skipped, {len(n.series) for n in read.nights} <= {2}) == ((), True)
    [writer.result() for writer in writers]

    assert seen == sorted(seen)
    assert sorted(n.run for n in store.read().nights) == runs


def test_a_writer_that_was_stopped_in_an_upload_leaves_nothing_to_read(own: ObjectStore, uri: str) -> None:
    store = HistoryStore.at(uri)
    store.append(night())
    half = store._fs.open_output_stream(f"{store._root}/nights/half.parquet")
    half.write(b"PAR1" * 100)

    assert len(own.uploads) == 1
    assert (store.read().nights, store.read().skipped) == ((night(),), ())
    half.close()
    assert store.read().skipped[0].startswith("nights/half.parquet: cannot be read (")


def test_no_more_is_asked_than_to_list_get_and_put_below_its_folder(own: ObjectStore, uri: str) -> None:
    """Rights to see the bucket, to make one, or to delete are often not given."""
    store = HistoryStore.at(uri)
    store.exists()
    store.prepare()
    store.append(night())
    store.read()

    kinds = {asked.partition(" ")[0] for asked in own.asked}
    assert kinds == {"HEAD", "GET", "POST", "PUT"}
    assert "HEAD /" not in own.asked
    part = next(key for key in own.objects if key.startswith(f"{store._root.partition('/')[2]}/nights/2026"))
    assert [asked for asked in own.asked if part in asked][-2:] == [f"HEAD {part}", f"GET {part}"]  # a part in one go


def test_who_may_only_read_is_told_so_before_the_night_and_can_look(own: ObjectStore, uri: str) -> None:
    HistoryStore.at(uri).append(night())
    path = place_of(uri).root
    reader, nobody = (HistoryStore.at(address(own.url, path, f"{key}:s3cr3t-key@")) for key in ("AKIAREADER", "AKIANO"))

    assert reader.read().nights == (night(),)
    shown = address(own.url, path.replace(" ", "%20"), "***@")
    for refused, doing in ((reader.prepare, "written"), (nobody.read, "read"), (nobody.exists, "read")):
        with pytest.raises(SpecsweepError, match="AWS Error ACCESS_DENIED during ") as told:
            refused()
        assert str(told.value).startswith(f"history {shown}: cannot be {doing}: ")
        assert "s3cr3t" not in str(told.value)
    with pytest.raises(SpecsweepError, match=r"nights/.* cannot be written: .*ACCESS_DENIED"):
        reader.append(night())


def test_a_bucket_or_a_server_that_is_not_there_is_told(uri: str, stand_in: ObjectStore) -> None:
    with pytest.raises(SpecsweepError, match=r"cannot be written: .*NO_SUCH_BUCKET|cannot be written: .*NoSuchBucket"):
        HistoryStore.at(address(OTHER_STORE or stand_in.url, "mistyped/nights")).prepare()
    told = CliRunner().invoke(main, ["history", address(OTHER_STORE or stand_in.url, "mistyped/nights")])
    assert told.exit_code == 2
    assert "there is none (no folder `nights`)" in told.output


def test_history_shows_and_marks_nights_of_an_object_store_and_tells_no_key(
    own: ObjectStore, uri: str, tmp_path: Path
) -> None:
    HistoryStore.at(uri).append(night())
    given = address(own.url, place_of(uri).root, f"AKIAWRITER:{SECRET.replace('/', '%2F').replace('+', '%2B')}@")
    outputs = [
        CliRunner().invoke(main, ["history", given, *words])
        for words in (["--html", str(tmp_path / "h.html"), "--md", str(tmp_path / "h.md")], ["--json"],
                      ["--mark", night().night_id, "false", "--note", "a noisy neighbour"], ["--scenario", "none"])
    ]  # fmt: skip

    assert [told.exit_code for told in outputs] == [0, 0, 0, 2]
    assert HistoryStore.at(uri).read().marks[0].note == "a noisy neighbour"
    said = (
        "".join(told.output for told in outputs) + (tmp_path / "h.html").read_text() + (tmp_path / "h.md").read_text()
    )
    kept = b"".join(own.objects.values()).decode(errors="replace")
    for word in ("AKIAWRITER", SECRET, SECRET.replace("/", "%2F"), "c2VjcmV0"):
        assert word not in said
        assert word not in kept
    assert "s3://***@bucket/" in (tmp_path / "h.html").read_text()


def test_a_night_is_kept_in_an_object_store_and_leaves_no_key_in_the_run(
    own: ObjectStore, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    given = address(own.url, place_of(uri).root, "AKIAWRITER:s3cr3t-of-the-bucket@")

    code, told = bench.night(history=given)

    assert code == 0
    assert f"History: {address(own.url, place_of(uri).root.replace(' ', '%20'), '***@')} (nights/" in told
    assert [kept.run for kept in HistoryStore.at(uri).read().nights] == ["run1"]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"s3cr3t" in file.read_bytes()]


def test_a_night_whose_history_cannot_be_written_is_not_begun(
    own: ObjectStore, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HistoryStore.at(uri).append(night())
    bench = Bench(tmp_path, monkeypatch)

    with pytest.raises(BadInput, match="ACCESS_DENIED"):
        bench.night(history=address(own.url, place_of(uri).root, "AKIAREADER:s3cr3t-key@"))
    assert bench.slots[0].launched == []


@pytest.mark.parametrize(
    ("location", "told"),
    [
        (
            "s3://AKIA:with/slash@bucket/x",
            "history s3://***@bucket/x: is no place that can be opened: Cannot parse URI",
        ),
        ("s3://bucket/x?bogus=1", "Unexpected query parameter in S3 URI: 'bogus'"),
        ("s3:/bucket/x", "history s3:/bucket/x: a URI has two slashes: s3://BUCKET/FOLDER"),
        ("S3:bucket", "a URI has two slashes"),
        ("ftp://host/x", "history ftp://host/x: is no place that can be opened"),
    ],
)
def test_a_place_that_cannot_be_opened_is_told_in_a_line_without_its_key(location: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        HistoryStore.at(location)
    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert "with/slash" not in str(refused.value)


def test_a_scheme_in_capitals_is_the_same_place_and_no_folder_of_this_name(own: ObjectStore, uri: str) -> None:
    HistoryStore.at(uri).append(night())

    assert HistoryStore.at(uri.replace("s3://", "S3://")).read().nights == (night(),)


def test_names_of_containers_are_shown_and_secrets_in_a_query_are_not() -> None:
    assert shown("abfs://nights@account.dfs.core.windows.net/x") == "abfs://nights@account.dfs.core.windows.net/x"
    assert shown("abfs://x@y/z?tenant_id=t&client_secret=abc%2Fdefghi") == "abfs://x@y/z?tenant_id=t&client_secret=***"
    assert shown("/plain/a:b@c") == "/plain/a:b@c"


def shown(location: str) -> str:
    from orchestrator.history.history_place import without_secrets

    return without_secrets(location, location)
