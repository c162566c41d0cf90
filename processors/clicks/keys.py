"""The user, session and query of a list, as 128-bit keys for memories."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.id_table import Hashes, hashes
from kinstream.processors.clicks.kernels import join
from kinstream.processors.clicks.lists import Flags, Lists, Numbers
from kinstream.streams.records.randomised_id import one_spelling

#: Prefixes that distinguish a user from a session of the same name, and a vector from an item.
_SESSION: Final = np.uint64(0x5353_5353_5353_5353)
_VECTOR: Final = np.uint64(0x5656_5656_5656_5656)


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Keys of n lists, each (n, 2) with (n,) flags of lists that have it.

    Parameters
    ----------
    voters : the user; the session if no user is known.
    sessions, addresses : of those that name one.
    queries : the item's hash, or one of the query's own vector if no item is named.
    scopes : session and query together.
    """

    voters: Hashes
    has_voter: Flags
    sessions: Hashes
    has_session: Flags
    queries: Hashes
    has_query: Flags
    scopes: Hashes
    has_scope: Flags
    addresses: Hashes
    has_address: Flags


def keys_of(lists: Lists) -> Keys:
    """The keys of all lists."""
    block = lists.block
    actors = hashes(block.actors)
    has_user, has_session = block.user >= 0, block.session >= 0
    sessions = _chosen(actors, block.session, has_session)
    sessions[has_session, 1] ^= _SESSION
    voters = np.where(has_user[:, None], _chosen(actors, block.user, has_user), sessions)
    has_item = block.query >= 0
    queries = _chosen(lists.keys, block.query, has_item)
    by_vector = ~has_item & (block.query_row >= 0)
    if by_vector.any():
        rows, at = np.unique(block.query_row[by_vector], return_inverse=True)
        queries[by_vector] = _hashed_rows(lists, rows)[at]
    has_query = has_item | by_vector
    address = np.full(len(lists), -1, np.int32) if block.address is None else block.address
    return Keys(
        voters=voters,
        has_voter=has_user | has_session,
        sessions=sessions,
        has_session=has_session,
        queries=queries,
        has_query=has_query,
        scopes=join(sessions, queries),
        has_scope=has_session & has_query,
        addresses=_chosen(actors, address, address >= 0),
        has_address=address >= 0,
    )


def list_keys(lists: Lists, keys: Keys) -> Hashes:
    """Keys of the lists themselves: their id, which only needs to be unique within one voter and session."""
    ids = [one_spelling(list_id) for list_id in lists.block.list_ids]
    return join(join(hashes(ids), keys.voters), keys.sessions)


def _chosen(names: Hashes, numbers: Numbers, there: Flags) -> Hashes:
    """The hashes of existing ones, and zeros."""
    chosen = np.zeros((len(numbers), 2), np.uint64)
    chosen[there] = names[numbers[there]]
    return chosen


def _hashed_rows(lists: Lists, rows: NDArray[np.int32]) -> Hashes:
    tables = sorted(lists.block.query_vectors, key=lambda table: table.name)
    vectors = np.concatenate([table.vectors[rows] for table in tables], axis=1, dtype="<f4")
    joined = b"".join([blake2b(row.tobytes(), digest_size=16).digest() for row in vectors])
    made = np.frombuffer(joined, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    made[:, 1] ^= _VECTOR
    return made
