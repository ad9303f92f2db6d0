"""The epoch and the vote of this node in the metadata quorum, in Kafka's file `quorum-state`."""

from pathlib import Path
from uuid import UUID

import orjson

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.replication.ballots import NOBODY
from headwater.core_log.replication.quorum import ElectionState
from headwater.core_log.replication.voters import ReplicaKey
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.properties import decode_uuid, encode_uuid

FILE_NAME = "quorum-state"
DATA_VERSION = 1
NO_VOTE = ReplicaKey(NOBODY, UUID(int=0))


def read_quorum_state(files: Files, directory: Path) -> ElectionState | None:
    """Returns the stored state; None if there is no file yet. Raises `DecodeError` if the file is
    damaged."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    try:
        values = orjson.loads(files.read(path))
        voted = ReplicaKey(int(values["votedId"]), decode_uuid(values["votedDirectoryId"]))
        vote = None if voted == NO_VOTE else voted
        state = ElectionState(int(values["leaderEpoch"]), int(values["leaderId"]), vote)
        version = values["data_version"]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise DecodeError("quorum-state is damaged", file=str(path)) from None
    if version != DATA_VERSION:
        raise DecodeError("quorum-state has an unknown version", file=str(path), version=version)
    return state


def write_quorum_state(files: Files, directory: Path, state: ElectionState) -> None:
    """Writes the state; it is on disk on return."""
    voted = state.voted or NO_VOTE
    values = {
        "leaderId": state.leader,
        "leaderEpoch": state.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": encode_uuid(voted.directory_id),
        "data_version": DATA_VERSION,
    }
    files.replace(directory / FILE_NAME, orjson.dumps(values))
