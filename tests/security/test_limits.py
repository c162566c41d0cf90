"""Everything that is read from a topic, a file or HTTP has a limit: past it there is an error, not a full memory."""

from __future__ import annotations

import gzip
import io
import json
import socket
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import CollectorRegistry

import kinstream.producers.files.json_lines
import kinstream.producers.files.npz
import kinstream.producers.files.parquet
import kinstream.streams.checkpoints.files
from kinstream.producers.files.csv import BLOCK_BYTES, CsvFile
from kinstream.producers.files.json_lines import JsonLines
from kinstream.producers.files.npz import NpzFile
from kinstream.producers.files.parquet import ParquetFile
from kinstream.producers.files.selection import Selection
from kinstream.producers.labelled.npz_source import open_npz
from kinstream.producers.loads.progress import ProgressFolder
from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.folder import CheckpointFolder
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.manifest import DataFile
from kinstream.streams.checkpoints.object_files import ObjectFiles
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import (
    BadRecord,
    BatchTooLarge,
    CheckpointError,
    Reason,
    SettingsError,
    SourceError,
)
from kinstream.streams.operations.models import data_of
from kinstream.streams.records.codec import avro
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.codec.json_text import MAX_DEPTH
from kinstream.streams.records.values import ModelVersion, SampleBlock, Table
from kinstream.streams.settings import load
from kinstream.streams.worker import decompress
from kinstream.streams.worker.page.server import MAX_HEADER_BYTES, MAX_LINE_BYTES, Check, Health, HttpServer

MIB = 2**20


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if Python allocates more than `limit` bytes at once in between."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.0f} MiB at once"


# ---- topic records ---------------------------------------------------------------------------------------------------


def _reason(value: bytes) -> Reason:
    with pytest.raises(BadRecord) as error:
        decode_event(value)
    return error.value.reason


def test_a_record_above_the_limit_is_not_looked_at() -> None:
    value = b"{" + b" " * (2 * avro.MAX_MESSAGE_BYTES)
    with memory_below(MIB):
        assert _reason(value) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "value",
    [
        b"{" + b'"a":[' * (4 * MAX_DEPTH + 1),
        b'{"a":' + b"[" * 300_000,
        b'{"kind":"samples","time_ms":' + b"9" * 900_000 + b"}",
        b'{"kind":' + b'"' + b"x" * 900_000 + b'"}',
        b'{"kind":"samples","space":"s","time_ms":0,"labels":[],"vectors":[' + b"[]," * 200_000 + b"[]]}",
        b"{" + b",".join(b'"%d":0' % i for i in range(90_000)) + b"}",
    ],
    ids=["deep", "deeper", "digits", "string", "rows", "fields"],
)
def test_json_of_any_shape_is_refused_in_bounded_memory(value: bytes) -> None:
    with memory_below(100 * MIB):
        assert _reason(value) in (Reason.UNDECODABLE, Reason.WRONG_KIND, Reason.BAD_SHAPE)


def _sample_head() -> bytes:
    block = SampleBlock("s", (Table("v", np.ones((1, 1), np.float32)),), np.array([1]), 0)
    value = encode(block)
    return value[: avro.HEADER_SIZE] + b"\x02s"


def _long(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        _long(10**12),  # tables that are not there
        _long(-(10**12)) + _long(10),
        _long(1) + _long(2**62),  # a name of exabytes
        _long(1) + b"\x02v" + _long(1) + _long(1) + _long(2**40),  # data of a terabyte
        _long(1) + b"\x02v" + _long(2**31 - 1) + _long(2**31 - 1) + b"\x08abcd",
        _long(230_000) + b"\x00\x00\x00\x00" * 230_000,  # a full record of empty tables
        b"\xff" * 900_000,
        _long(-(2**63)),
    ],
    ids=["blocks", "negative", "name", "data", "shape", "tables", "varint", "least"],
)
def test_lengths_that_a_record_claims_are_not_believed(body: bytes) -> None:
    with memory_below(200 * MIB):
        assert _reason(_sample_head() + body) in (Reason.UNDECODABLE, Reason.BAD_SHAPE)


# ---- compressed batches ----------------------------------------------------------------------------------------------

CODECS: dict[str, tuple[int, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (1, gzip.compress, decompress.gzip_decode),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data)), decompress.snappy_decode),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data)), decompress.lz4_decode),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data)), decompress.zstd_decode),
}


def _batch(kind: int, size: int) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, kind, 0, -1, -1, 0, 2 * size + 1000)
    builder.append(0, 0, b"key", bytes(size), [])
    return bytes(builder.build())


def _first(batch: bytes, at: int = 0) -> Any:
    """The first record, by the way that the worker's consumer takes."""
    from aiokafka import TopicPartition
    from aiokafka.consumer import fetcher
    from aiokafka.record.memory_records import MemoryRecords

    import kinstream.streams.worker.transport  # noqa: F401

    place = TopicPartition("kinstream.events", 3)
    records = fetcher.PartitionRecords(place, MemoryRecords(batch), [], at, None, None, True, 0)
    return next(iter(records))


@pytest.mark.parametrize("name", CODECS)
def test_a_worker_reads_what_others_have_compressed(name: str) -> None:
    kind, pack, unpack = CODECS[name]
    assert _first(_batch(kind, 5_000)).value == bytes(5_000)
    data = np.random.default_rng([7, kind]).bytes(100_000)
    assert unpack(pack(data)) == data and unpack(pack(b"")) == b""


def test_snappy_blocks_of_the_java_library_are_read() -> None:
    from aiokafka.codec import snappy_encode

    data = np.random.default_rng([7, 9]).bytes(100_000)
    assert decompress.snappy_decode(snappy_encode(data)) == data
    assert decompress.gzip_decode(gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("name", CODECS)
def test_a_batch_that_unpacks_to_too_much_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompress, "MAX_BATCH_BYTES", 2 * MIB)
    batch = _batch(CODECS[name][0], 30 * MIB)
    with (
        memory_below(8 * MIB),
        pytest.raises(BatchTooLarge, match=r"kinstream\.events partition 3 offset 17"),
    ):
        _first(batch, 17)
    assert _first(_batch(CODECS[name][0], MIB)).value == bytes(MIB)


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer(Health([Check("here", lambda: True)]), CollectorRegistry()) as found:
        yield found


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /healthz?" + b"x" * (MAX_LINE_BYTES - 100) + b" HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /" + b"x" * MAX_LINE_BYTES + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET /healthz HTTP/1.0\r\nA: " + b"x" * (MAX_HEADER_BYTES - 100) + b"\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\nA: " + b"x" * MAX_HEADER_BYTES + b"\r\n\r\n", b"431"),
        (b"GET /healthz HTTP/1.0\r\n" + b"A: xxxxxxxx\r\n" * 2_000 + b"\r\n", b"431"),
        (b"GET /healthz HTTP/1.0\r\n" + b"A:\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /healthz HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", b"413"),
        (b"POST /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"405"),
    ],
)
def test_a_request_is_read_up_to_its_limits(request_: bytes, status: bytes, server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.settimeout(5)
        client.sendall(request_)
        answer = client.recv(64)
    assert answer.split()[1] == status


# ---- files of rows ---------------------------------------------------------------------------------------------------


def test_a_line_of_json_has_a_limit_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinstream.producers.files.json_lines, "MAX_LINE_BYTES", MIB)
    row = b'{"a": 1}\n'
    for name, pack in (("rows.jsonl", bytes), ("rows.jsonl.gz", gzip.compress)):
        path = tmp_path / name
        path.write_bytes(pack(row + b" " * (40 * MIB)))
        with memory_below(8 * MIB), pytest.raises(SourceError, match="row 2: longer than 1048576 bytes"):
            JsonLines(path)
        path.write_bytes(pack(row * 2))
        assert [body for _, body in JsonLines(path).objects(0)] == [{"a": 1}] * 2


def test_json_lines_cannot_have_any_number_of_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinstream.producers.files.json_lines, "MAX_FIELDS", 100)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({str(i): 0}) + "\n" for i in range(200)))
    with pytest.raises(SourceError, match="row 101: more than 100 fields"):
        JsonLines(path)
    path.write_text('{"a": ' + "[" * 100_000 + "\n")
    with pytest.raises(SourceError, match="row 1: not JSON"):
        JsonLines(path)


def _npz(path: Path, header: dict[str, Any], body: bytes) -> Path:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", out.getvalue() + body)
        label = io.BytesIO()
        np.save(label, np.arange(4))
        file.writestr("y.npy", label.getvalue())
    return path


def test_an_array_is_refused_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.npz"
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 8)}
    _npz(path, header, b"")
    for read in (_labelled, _columns):
        with (
            memory_below(MIB),
            pytest.raises(SourceError, match=r"'X' takes 59604.6 GiB in memory; the limit is 4 GiB"),
        ):
            read(path)
    for shape in ((4, 10), (2**62, 4), (-4, 1)):
        _npz(path, header | {"shape": shape}, bytes(64))
        with pytest.raises(SourceError, match=r"rows\.npz"):
            _labelled(path)
    _npz(path, header | {"shape": (4, 1), "descr": "|O"}, b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(SourceError, match="pickled objects are refused"):
        _labelled(path)
    _npz(path, header | {"shape": (4, 2)}, bytes(64))
    assert _labelled(path).layout.rows == 4
    # Zeros are packed a thousandfold.
    monkeypatch.setattr(kinstream.producers.files.npz, "MAX_ARRAY_BYTES", MIB)
    np.savez_compressed(path, X=np.zeros((4, 500_000)), y=np.arange(4))
    assert path.stat().st_size < 64_000
    with memory_below(MIB), pytest.raises(SourceError, match="Write it as Parquet"):
        _labelled(path)


def _labelled(path: Path) -> Any:
    return open_npz(path, Selection())


def _columns(path: Path) -> list[Any]:
    return list(NpzFile(path).parts(["X"], 0))


@pytest.mark.long
def test_a_row_group_of_parquet_is_refused_by_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    vectors = pa.array([[0.0] * 100_000] * 40, pa.list_(pa.float64()))
    pq.write_table(pa.table({"v": vectors, "y": list(range(40))}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(kinstream.producers.files.parquet, "MAX_GROUP_BYTES", 8 * MIB)
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match=r"row group 0 takes 0.0 GiB in memory.*smaller row groups"):
        next(ParquetFile(path).parts(["v", "y"], 0))
    assert pa.total_allocated_bytes() - before < MIB
    assert len(next(ParquetFile(path).parts(["y"], 0))) == 40


@pytest.mark.long
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_row_of_csv_has_to_fit_in_a_block(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    data = b"a,b\n1,2\n" + b"1" * (3 * BLOCK_BYTES) + b",2\n"
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(SourceError, match=name):
        list(CsvFile(path).parts(["a"], 0))


def test_a_progress_file_has_a_limit(tmp_path: Path) -> None:
    folder = ProgressFolder(tmp_path, {"cluster": "c", "topic": "t", "topic_id": None})
    for text in (b" " * 2_000_000, b"[" * 100_000):
        (tmp_path / "load.json").write_bytes(text)
        with pytest.raises(SettingsError, match=r"load.json: this progress file cannot be read"):
            folder.begin("load", {}, named=True)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def _stores(folder: Path) -> list[Any]:
    from fsspec import filesystem

    return [LocalFiles(str(folder)), ObjectFiles(filesystem("file"), str(folder), f"file://{folder}")]


def test_a_file_of_a_store_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinstream.streams.checkpoints.files, "MAX_FILE_BYTES", MIB)
    with (tmp_path / "00000000000000000001.manifest.json").open("wb") as file:
        file.truncate(200 * MIB)
    for files in _stores(tmp_path):
        with memory_below(4 * MIB), pytest.raises(Damaged, match=f"has more than {MIB} bytes"):
            files.read("00000000000000000001.manifest.json", MIB)
        folder = CheckpointFolder(files, ("a", 1, "t", 0))
        (tmp_path / "state").write_bytes(bytes(1_000))
        with pytest.raises(Damaged, match="has more than 10 bytes"):
            folder.content(DataFile("state", "0" * 64, 10))


def test_a_grown_manifest_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "a", 1, "t", 0)
    for offset in (1, 2):
        store.save(offset, changed={}, unchanged={}, partition={"n": offset}, last_record=None)
    newest = next(tmp_path.rglob("*2.manifest.json"))
    with newest.open("ab") as file:
        file.truncate(kinstream.streams.checkpoints.files.MAX_FILE_BYTES + 1)
    with memory_below(2 * kinstream.streams.checkpoints.files.MAX_FILE_BYTES + 64 * MIB):
        found = store.restore()
    assert found is not None and found.manifest.offset == 1 and "has more than" in found.notes[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 90_000_000) + b"{}",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        struct.pack("<Q", 4) + b"null",
        b"\x80\x04cos\nsystem\n(S'false'\ntR.",
    ],
)
def test_bytes_that_are_no_state_are_refused_in_bounded_memory(data: bytes) -> None:
    with memory_below(16 * MIB), pytest.raises(CheckpointError, match="not a whole safetensors state"):
        from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [0, 2**40]},
        {"shape": [2**40, 2**40]},
        {"shape": [10**12]},
        {"dtype": "F8_E9"},
    ],
)
def test_a_tensor_that_lies_about_its_size_is_refused(change: dict[str, Any]) -> None:
    whole = to_bytes({"L": np.eye(3, dtype=np.float32)})
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    header["L"] |= change
    text = json.dumps(header).encode()
    with memory_below(MIB), pytest.raises(CheckpointError, match="not a whole safetensors state"):
        from_bytes(struct.pack("<Q", len(text)) + text + whole[8 + size :])


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest",
        "https://host/x",
        "simplecache::s3://b/x",
        "zip://a::http://host/x.zip",
        "ssh://h/x",
    ],
)
def test_a_model_record_cannot_send_its_reader_anywhere(location: str, tmp_path: Path) -> None:
    settings = load(None, {"checkpoints.url": str(tmp_path), "kafka.bootstrap_servers": "b:1"})
    fields: dict[str, Any] = dict.fromkeys(ModelVersion.__dataclass_fields__, 0)
    names = dict.fromkeys(("space", "learner", "algorithm", "topic", "sha256"), "x")
    version = ModelVersion(**(fields | names | {"location": location, "generation": 1, "partition": 0}))
    with pytest.raises(CheckpointError, match="only checkpoint stores are read"):
        data_of(version, settings)
