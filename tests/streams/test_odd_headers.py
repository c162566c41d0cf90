"""A header whose name is no UTF-8 costs its record the headers, and nobody anything else."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from kinstream.streams.kafka.reader import headers_of
from kinstream.streams.worker import decompress

decompress.install()
READ_COMMITTED = 1


class Bytes(str):
    """A header name whose bytes are no UTF-8."""

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        return b"caf\xe9"


def batch(first: int, *records: Any, codec: int = 0) -> bytes:
    """A batch from offset `first` on, each record with these headers."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1_000_000)
    for number, headers in enumerate(records):
        builder.append(number, 5, b"k", f"v{first + number}".encode(), headers)
    data = bytearray(builder.build())
    data[:8] = first.to_bytes(8, "big")
    return bytes(data)


def read(data: bytes, wanted: int = 0) -> list[Any]:
    records = fetcher.PartitionRecords(
        TopicPartition("t", 0), fetcher.MemoryRecords(data), [], wanted, None, None, True, READ_COMMITTED
    )
    found = list(records)
    assert records.next_fetch_offset == found[-1].offset + 1
    return found


PLAIN: Any = [("a", b"1"), ("\u00e9", None)]
ODD: Any = [("a", b"1"), (Bytes("cafe"), b"v")]


@pytest.mark.parametrize("codec", [0, 1, 4], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("wanted", [0, 2, 3, 4, 7])
def test_every_record_is_given_once_and_only_odd_headers_are_gone(codec: int, wanted: int) -> None:
    # By the last offset of each: a broker begins with the batch that holds the wanted offset.
    batches = {
        1: batch(0, PLAIN, PLAIN, codec=codec),
        5: batch(2, PLAIN, ODD, PLAIN, ODD, codec=codec),
        6: batch(6, [], codec=codec),
        8: batch(7, ODD, PLAIN, codec=codec),
    }
    found = read(b"".join(data for last, data in batches.items() if last >= wanted), wanted)
    assert [r.offset for r in found] == list(range(wanted, 9))
    assert [r.value for r in found] == [f"v{n}".encode() for n in range(wanted, 9)]
    without = {r.offset for r in found if not r.headers}
    assert without == {3, 5, 6, 7} & set(range(wanted, 9))
    assert all(list(r.headers) == PLAIN for r in found if r.headers)


def test_the_other_client_gives_none_either() -> None:
    class Record:
        def headers(self) -> Any:
            try:
                b"caf\xe9".decode()
            except UnicodeDecodeError as error:
                raise SystemError("returned a result with an exception set") from error

    assert headers_of(Record()) == ()
