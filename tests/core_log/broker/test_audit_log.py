"""The audit says who administered what, and has no secrets."""

from pathlib import Path
from typing import Any

import orjson

from headwater.core_log.broker.audit_log import (
    FILE_BYTES_MAX,
    FILE_NAME,
    FILES_MAX,
    REPEATED_AFTER_MS,
    AuditLog,
    result_of,
    summary_of,
)
from headwater.core_log.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.security.principal import Principal
from headwater.core_log.storage.files import OsFiles
from tests.fakes import SimulatedClock

ALICE = Principal("alice")


def lines(directory: Path, name: str = FILE_NAME) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (directory / name).read_bytes().splitlines()]


def test_a_line_says_who_did_what_from_where_with_which_result(tmp_path: Path) -> None:
    audit = AuditLog(OsFiles(), tmp_path, SimulatedClock(7))
    acl = AclCreation(
        resource_type=2, resource_name="t", principal="User:bob", host="*", operation=3
    )

    audit.note(
        "CreateAcls", ALICE, "10.0.0.7", "ok", summary_of(CreateAclsRequest(creations=[acl]))
    )

    assert lines(tmp_path) == [
        {
            "time_ms": 7,
            "principal": "User:alice",
            "host": "10.0.0.7",
            "action": "CreateAcls",
            "result": "ok",
            "request": {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "t",
                        "resource_pattern_type": 3,
                        "principal": "User:bob",
                        "host": "*",
                        "operation": 3,
                        "permission_type": 0,
                    }
                ]
            },
        }
    ]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_values_of_settings_are_not_written_down() -> None:
    config = AlterableConfig(name="sasl.jaas.config", value="a-secret", config_operation=0)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])

    shown = summary_of(IncrementalAlterConfigsRequest(resources=[resource]))

    assert "sasl.jaas.config" in str(shown)
    assert "a-secret" not in str(shown)


def test_a_result_names_the_errors_of_all_parts() -> None:
    results = [AclCreationResult(error_code=code) for code in (0, 42, 42, 31)]

    assert result_of(CreateAclsResponse(results=results)) == (
        "INVALID_REQUEST,CLUSTER_AUTHORIZATION_FAILED"
    )
    assert result_of(CreateAclsResponse()) == "ok"


def test_a_refusal_that_is_repeated_is_counted(tmp_path: Path) -> None:
    clock = SimulatedClock(1_000_000)
    audit = AuditLog(OsFiles(), tmp_path, clock)

    for _ in range(5):
        audit.note_refusal("Vote", ALICE, "10.0.0.7", "CLUSTER_AUTHORIZATION_FAILED")
    clock.advance(REPEATED_AFTER_MS)
    audit.note_refusal("Vote", ALICE, "10.0.0.7", "CLUSTER_AUTHORIZATION_FAILED")

    assert [each.get("repeated", 0) for each in lines(tmp_path)] == [0, 4]


def test_a_full_file_makes_room_for_the_next(tmp_path: Path) -> None:
    audit = AuditLog(OsFiles(), tmp_path, SimulatedClock(7))
    audit.note("first", ALICE, "h", "ok")
    (tmp_path / f"{FILE_NAME}.{FILES_MAX - 1}").write_text("the oldest\n")
    with (tmp_path / FILE_NAME).open("r+") as file:
        file.truncate(FILE_BYTES_MAX)

    audit.note("second", ALICE, "h", "ok")

    assert [each["action"] for each in lines(tmp_path)] == ["second"]
    assert (tmp_path / f"{FILE_NAME}.1").stat().st_size == FILE_BYTES_MAX
    assert (tmp_path / f"{FILE_NAME}.1").stat().st_mode & 0o777 == 0o600


def test_a_disk_that_refuses_the_audit_stops_nothing(tmp_path: Path) -> None:
    audit = AuditLog(OsFiles(), tmp_path / "absent", SimulatedClock(7))

    audit.note("action", ALICE, "h", "ok")

    assert not (tmp_path / "absent").exists()
