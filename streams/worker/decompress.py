"""Decompresses batches within a limit, for topics with other producers.

A batch of 6 KB can unpack to 200 MB, and a batch of a topic's full megabyte to hundreds of gigabytes. aiokafka unpacks
without a limit, so its decoders are replaced by ones that stop. If the writers of a topic are not trusted, the topic
setting `compression.type=uncompressed` makes the broker refuse such a batch when it is written.
"""

from __future__ import annotations

import struct
import zlib
from importlib import import_module
from typing import Any, Final

import cramjam
import numpy as np
from aiokafka.errors import CorruptRecordException

from kinstream.streams.errors import BatchTooLarge
from kinstream.streams.kafka.odd_headers import Records, cannot_be_read

#: Largest unpacked size of a batch. Our producers write none above 1 MB.
MAX_BATCH_BYTES: Final = 64 * 2**20
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
#: The modules of aiokafka that hold a decoder by name, compiled or not.
_MODULES: Final = (
    "aiokafka.codec",
    "aiokafka.record.default_records",
    "aiokafka.record.legacy_records",
    "aiokafka.record._crecords.default_records",
    "aiokafka.record._crecords.legacy_records",
)


class TooLarge(Exception):
    """A batch unpacks to more than `MAX_BATCH_BYTES`."""


def gzip_decode(payload: Any) -> bytes:
    """Unpack one or several gzip members."""
    found, rest = bytearray(), bytes(payload)
    while rest:
        member = zlib.decompressobj(wbits=31)
        found += member.decompress(rest, MAX_BATCH_BYTES + 1 - len(found))
        if len(found) > MAX_BATCH_BYTES:
            raise TooLarge
        if not member.eof:
            raise ValueError("a gzip member is cut off")
        rest = member.unused_data
    return bytes(found)


def snappy_decode(payload: Any) -> bytes:
    """Unpack one block, or the blocks of the Java library's framing. Each begins with its unpacked size."""
    data = bytes(payload)
    if not data.startswith(_XERIAL):
        return _snappy_block(data, MAX_BATCH_BYTES)
    found, at = bytearray(), _XERIAL_HEADER
    while at < len(data):
        (size,) = struct.unpack_from("!i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise ValueError("a snappy block is cut off")
        found += _snappy_block(data[at + 4 : at + 4 + size], MAX_BATCH_BYTES - len(found))
        at += 4 + size
    return bytes(found)


def _snappy_block(data: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise TooLarge
    return bytes(cramjam.snappy.decompress_raw(data))


def lz4_decode(payload: Any) -> bytes:
    """Unpack LZ4 frames."""
    return _into(cramjam.lz4, payload)


def zstd_decode(payload: Any) -> bytes:
    """Unpack Zstandard frames."""
    return _into(cramjam.zstd, payload)


def _into(codec: Any, payload: Any) -> bytes:
    # Pages that are never written are never allocated.
    room = np.empty(MAX_BATCH_BYTES, np.uint8)
    try:
        size = codec.decompress_into(bytes(payload), room)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise TooLarge from error
        raise
    return room[:size].tobytes()


def install() -> None:
    """Make aiokafka use these decoders, report the place of a batch that is too large, and read any header."""
    ours = {one.__name__: one for one in (gzip_decode, snappy_decode, lz4_decode, zstd_decode)}
    for name in _MODULES:
        try:
            module = import_module(name)
        except ImportError:
            continue
        for decoder, ours_ in ours.items():
            if hasattr(module, decoder):
                setattr(module, decoder, ours_)
    fetcher: Any = import_module("aiokafka.consumer.fetcher")
    if not issubclass(fetcher.PartitionRecords, _Placed):
        fetcher.PartitionRecords = type("PartitionRecords", (_Placed, fetcher.PartitionRecords), {})
        fetcher.MemoryRecords = Records


class _Placed:
    """Wraps aiokafka's PartitionRecords."""

    def _consumer_record(self, tp: Any, record: Any) -> Any:
        """The record as the reader of the batch has made it; the transport makes a message of it."""
        return record

    def __next__(self) -> Any:
        records: Any = super()
        of: Any = self
        try:
            return records.__next__()
        except (UnicodeDecodeError, CorruptRecordException) as error:
            if not cannot_be_read(error):
                raise
            # Records that were already returned are before `next_fetch_offset`.
            of._records.read_slowly(of.next_fetch_offset)
            of._records_iterator = of._unpack_records()
            return records.__next__()
        except TooLarge as error:
            place = f"{of._tp.topic} partition {of._tp.partition} offset {of.next_fetch_offset}"
            raise BatchTooLarge(
                f"{place}: a compressed batch unpacks to more than {MAX_BATCH_BYTES // 2**20} MiB. Make its producer "
                "send smaller ones. To continue, delete the log's records up to the end of the batch "
                "(kafka-delete-records.sh), and accept the gap that the worker then reports"
            ) from error
