"""Writes a job's trajectories as two Parquet tables, for other tools and to keep them after retention.

Takes rows of ended sessions and of their nodes. Returns `sessions` (one row per session: task, reward, counts) and
`nodes` (one row per node: tokens, and logprob, version and mask of each token), as a stream of bytes or as files. A
path of `nodes` from a root to a leaf has exactly the tokens that the engine saw. Invariant: at most the nodes of
SESSIONS_PER_GROUP sessions are in memory.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import zstandard
from django.db import connection
from numpy.typing import NDArray

from seamlessflow.control_plane.trajectories.models import NodeKind
from seamlessflow.control_plane.trajectories.selectors.sessions import version_spans_decode
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.types.ids import IdKind, show_id

if TYPE_CHECKING:
    import pyarrow as pa

SESSIONS_PER_GROUP = 50  # of rows: a row group of Parquet
UNKNOWN_VERSION = -1
Rows = list[tuple[Any, ...]]

_SESSIONS = f"""
    SELECT s.id, s.month, g.id, g.index, g.evaluation_version, g.task::text, s.slot, s.attempt, s.state, s.reason,
           s.reward, s.is_timeout, s.is_late, s.metrics::text, s.num_turns, s.num_sampled_tokens, g.batch_number,
           s.opened_at, s.closed_at
    FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id
    WHERE s.job_id = %s AND s.id > %s AND s.state <> '{SessionState.OPEN}' ORDER BY s.id LIMIT %s
"""
_NODES = """
    SELECT n.session_id, n.node_index, n.parent_index, n.kind, n.num_tokens, coalesce(n.token_ids, p.token_ids),
           n.logprobs, n.version_spans, n.loss_mask, n.finish_reason, n.messages::text, n.drift, n.cause,
           n.is_partial, n.created_at
    FROM trajectory_node n LEFT JOIN trajectory_prompt p ON p.id = n.prompt_id
    WHERE n.month = ANY(%s) AND n.session_id = ANY(%s) ORDER BY n.session_id, n.node_index
"""


class ParquetTable(StrEnum):
    SESSIONS = "sessions"
    NODES = "nodes"

    @property
    def file_name(self) -> str:
        return f"{self.value}.parquet"


def parquet_chunks(job_id: UUID, table: ParquetTable) -> Iterator[bytes]:
    """Yield the bytes of a table with the job's current rows, one row group at a time."""
    # Imported here because it takes 100 MB of memory, which only exports need.
    import pyarrow.parquet as pq

    sink, build = _Sink(), _BUILDERS[table]
    empty = build([], [])
    with pq.ParquetWriter(sink, empty.schema, compression="zstd") as writer:
        for sessions in _session_groups(job_id):
            nodes = _nodes_of(sessions) if table is ParquetTable.NODES else []
            writer.write_table(build(sessions, nodes))
            yield sink.taken()
    yield sink.taken()


def parquet_write(job_id: UUID, folder: Path) -> None:
    """Write both tables as files in `folder`, which appears complete or not at all. Raises OSError."""
    aside = folder.with_name(f".writing-{folder.name}")
    aside.mkdir(parents=True, exist_ok=True)  # files of an interrupted export are overwritten
    for table in ParquetTable:
        with (aside / table.file_name).open("wb") as file:
            for chunk in parquet_chunks(job_id, table):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    if folder.exists():  # of an export that was interrupted before it was kept
        shutil.rmtree(folder)
    aside.rename(folder)


class _Sink(io.RawIOBase):
    """Collects the bytes of the writer until `taken` returns them."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._num_bytes += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._num_bytes

    def taken(self) -> bytes:
        taken, self._chunks = b"".join(self._chunks), []
        return taken


def _session_groups(job_id: UUID) -> Iterator[Rows]:
    last = UUID(int=0)
    while rows := _rows(_SESSIONS, [job_id, last, SESSIONS_PER_GROUP]):
        yield rows
        last = rows[-1][0]


def _nodes_of(sessions: Rows) -> Rows:
    return _rows(_NODES, [list({row[1] for row in sessions}), [row[0] for row in sessions]])


def _rows(statement: str, parameters: list[object]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)  # type: ignore[arg-type]  # lists of identifiers are parameters too
        return list(cursor.fetchall())


def _sessions_table(sessions: Rows, _nodes: Rows) -> "pa.Table":
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    types: Mapping[str, pa.DataType] = {
        "session": pa.string(), "group": pa.string(), "group_index": pa.int64(), "evaluation_version": pa.int64(),
        "task": pa.string(), "slot": pa.int32(), "attempt": pa.int32(), "state": pa.string(), "reason": pa.string(),
        "reward": pa.float64(), "is_timeout": pa.bool_(), "is_late": pa.bool_(), "metrics": pa.string(),
        "num_turns": pa.int32(), "num_sampled_tokens": pa.int64(), "batch_number": pa.int64(), "opened_at": time,
        "closed_at": time,
    }  # fmt: skip
    columns = _columns(sessions, len(types) + 1)
    del columns[1]  # the month, by which the nodes are found
    columns[0] = [show_id(IdKind.SESSION, value) for value in columns[0]]
    columns[1] = [show_id(IdKind.GROUP, value) for value in columns[1]]
    return pa.table(dict(zip(types, columns, strict=True)), schema=pa.schema(list(types.items())))


def _nodes_table(_sessions: Rows, nodes: Rows) -> "pa.Table":
    """Build the table. A node's token column is null if it has none: only sampled tokens have logprobs and versions."""
    import pyarrow as pa

    (session, index, parent, kind, num_tokens, ids, logprobs, spans, masks, finish, messages, drift, cause, partial,
     at) = _columns(nodes, 15)  # fmt: skip
    per_token = list(zip(spans, num_tokens, strict=True))
    columns = {
        "session": pa.array([show_id(IdKind.SESSION, value) for value in session], pa.string()),
        "node": pa.array(index, pa.int32()),
        "parent": pa.array(parent, pa.int32()),
        "kind": pa.array([NodeKind(value).name.lower() for value in kind], pa.string()),
        "token_ids": _lists([_unpacked(value, "<i4") for value in ids], pa.int32()),
        "logprobs": _lists([_unpacked(value, "<f4") for value in logprobs], pa.float32()),
        "versions": _lists([_versions(flat, count) for flat, count in per_token], pa.int32()),
        "is_trainable": _lists(
            [_mask(mask, flat, count) for mask, (flat, count) in zip(masks, per_token, strict=True)],
            pa.bool_(),
        ),
        "finish_reason": pa.array(finish, pa.string()),
        "messages": pa.array(messages, pa.string()),
        "drift": pa.array(drift, pa.string()),
        "join_cause": pa.array(cause, pa.string()),
        "is_partial": pa.array(partial, pa.bool_()),
        "created_at": pa.array(at, pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


def _columns(rows: Rows, count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _lists(arrays: list[NDArray[Any] | None], of: "pa.DataType") -> "pa.ListArray":
    """Join the rows' arrays into one list column, without a Python object per token."""
    import pyarrow as pa

    lengths = [0 if array is None else len(array) for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int32)]).astype(np.int32)
    given = [array for array in arrays if array is not None]
    values = pa.array(np.concatenate(given) if given else [], of)
    missing = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=missing)


def _unpacked(packed: bytes | memoryview | None, dtype: str) -> NDArray[Any] | None:
    return None if packed is None else np.frombuffer(zstandard.decompress(bytes(packed)), dtype=dtype)


def _versions(flat: list[int] | None, num_tokens: int) -> NDArray[np.int32] | None:
    if flat is None:
        return None
    versions = np.full(num_tokens, UNKNOWN_VERSION, dtype=np.int32)
    for span in version_spans_decode(flat, num_tokens=num_tokens):
        versions[span.start : span.end] = span.version
    return versions


def _mask(
    packed: bytes | memoryview | None, flat: list[int] | None, num_tokens: int
) -> NDArray[np.bool_] | None:
    """Return the loss mask of sampled tokens. If none is stored, all of them may be trained."""
    if flat is None:
        return None
    if packed is None:
        return np.ones(num_tokens, dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(bytes(packed), dtype=np.uint8), count=num_tokens)
    return bits.astype(np.bool_)


_BUILDERS: Mapping[ParquetTable, Callable[[Rows, Rows], Any]] = {
    ParquetTable.SESSIONS: _sessions_table,
    ParquetTable.NODES: _nodes_table,
}
