"""Requests of every API, the grants that each needs, and what of an answer depends on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages import (
    add_offsets_to_txn,
    add_raft_voter,
    delete_acls,
    delete_groups,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_transactions,
    elect_leaders,
    end_txn,
    heartbeat,
    leave_group,
    list_config_resources,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    remove_raft_voter,
    sync_group,
    unregister_broker,
    update_features,
)
from headwater.core_log.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.core_log.broker.access_requests import (
    ABSENT,
    GROUP,
    MADE,
    ORDERS,
    OTHER,
    TXN,
    UNKNOWN_ID,
    Facts,
    ask_add_partitions,
    ask_add_partitions_as_broker,
    ask_alter_configs,
    ask_alter_quotas,
    ask_alter_some_configs,
    ask_commit,
    ask_commit_by_id,
    ask_commit_in_transaction,
    ask_coordinator,
    ask_create_acl,
    ask_create_partitions,
    ask_create_topic,
    ask_delete_offsets,
    ask_delete_records,
    ask_delete_topics,
    ask_delete_topics_by_id,
    ask_describe_configs,
    ask_epoch_end,
    ask_fetch,
    ask_fetch_all_offsets,
    ask_fetch_by_id,
    ask_fetch_offsets,
    ask_fetch_offsets_of_one,
    ask_init,
    ask_join,
    ask_leave,
    ask_list_offsets,
    ask_markers,
    ask_metadata,
    ask_metadata_by_id,
    ask_move,
    ask_one_coordinator,
    ask_produce,
    ask_produce_by_id,
    ask_produce_in_transaction,
    ask_producers,
    ask_topic_partitions,
)

NAMES = {"name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name"}
DENIALS = {29, 30, 31, 53}


class Grant(NamedTuple):
    """What the right principal of a case may do."""

    operation: AclOperation
    resource_type: ResourceType
    name: str = CLUSTER_NAME

    def acl(self, principal: str) -> Acl:
        return Acl(
            self.resource_type,
            self.name,
            PatternType.LITERAL,
            principal,
            "*",
            self.operation,
            Permission.ALLOW,
        )


@dataclass
class Case:
    """One request; all `grants` are needed, since the answer differs without any of them."""

    name: str
    make: Callable[[Facts], Any]
    grants: Sequence[Grant]
    version: int | None = None


A, T = AclOperation, ResourceType


def topic(operation: AclOperation, *names: str) -> list[Grant]:
    return [Grant(operation, T.TOPIC, name) for name in names or (ORDERS, ABSENT)]


def group(operation: AclOperation, name: str = GROUP) -> list[Grant]:
    return [Grant(operation, T.GROUP, name)]


def txn(operation: AclOperation, name: str = TXN) -> list[Grant]:
    return [Grant(operation, T.TRANSACTIONAL_ID, name)]


def cluster(operation: AclOperation) -> list[Grant]:
    return [Grant(operation, T.CLUSTER)]


CASES: Sequence[Case] = (
    Case("produce", ask_produce, topic(A.WRITE), 12),
    Case("produce by id", ask_produce_by_id, topic(A.WRITE, ORDERS), 13),
    Case(
        "produce in a transaction",
        ask_produce_in_transaction,
        [*txn(A.WRITE), *topic(A.WRITE, ORDERS)],
        12,
    ),
    Case("fetch", ask_fetch, topic(A.READ), 12),
    Case("fetch by id", ask_fetch_by_id, topic(A.READ, ORDERS), 13),
    Case(
        "fetch as a replica",
        lambda facts: ask_fetch(facts, replica_id=1),
        cluster(A.CLUSTER_ACTION),
        12,
    ),
    Case("list offsets", ask_list_offsets, topic(A.DESCRIBE)),
    Case("metadata", ask_metadata(ORDERS, ABSENT), topic(A.DESCRIBE)),
    Case(
        "metadata of all",
        lambda facts: metadata.MetadataRequest(topics=None),
        topic(A.DESCRIBE, ORDERS, OTHER),
    ),
    Case("metadata by id", ask_metadata_by_id, topic(A.DESCRIBE, ORDERS)),
    Case(
        "metadata that creates",
        ask_metadata("automatic", creates=True),
        [*topic(A.DESCRIBE, "automatic"), *topic(A.CREATE, "automatic")],
    ),
    Case(
        "metadata that creates in the cluster",
        ask_metadata("automatic2", creates=True),
        [*topic(A.DESCRIBE, "automatic2"), *cluster(A.CREATE)],
    ),
    Case(
        "metadata with operations",
        ask_metadata(ORDERS, ABSENT, with_operations=True),
        [*topic(A.DESCRIBE), *topic(A.ALTER_CONFIGS, ORDERS), *cluster(A.DESCRIBE)],
        10,
    ),
    Case("topic partitions", ask_topic_partitions(ORDERS, ABSENT), topic(A.DESCRIBE)),
    Case("all topic partitions", ask_topic_partitions(), topic(A.DESCRIBE, ORDERS, OTHER)),
    Case("epoch end", ask_epoch_end, topic(A.DESCRIBE)),
    Case("epoch end as a broker", ask_epoch_end, cluster(A.CLUSTER_ACTION)),
    Case("coordinator of a group", ask_coordinator(0, GROUP), group(A.DESCRIBE), 4),
    Case("coordinator of a group alone", ask_one_coordinator, group(A.DESCRIBE), 3),
    Case("coordinator of a transactional id", ask_coordinator(1, TXN), txn(A.DESCRIBE), 4),
    Case("join", ask_join, group(A.READ)),
    Case(
        "sync",
        lambda facts: sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        group(A.READ),
    ),
    Case(
        "heartbeat",
        lambda facts: heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"),
        group(A.READ),
    ),
    Case("leave", ask_leave, group(A.READ)),
    Case(
        "leave alone",
        lambda facts: leave_group.LeaveGroupRequest(group_id=GROUP, member_id="m"),
        group(A.READ),
        2,
    ),
    Case("commit offsets", ask_commit, [*group(A.READ), *topic(A.READ)], 9),
    Case("commit offsets by id", ask_commit_by_id, [*group(A.READ), *topic(A.READ, ORDERS)], 10),
    Case(
        "fetch offsets",
        ask_fetch_offsets,
        [*group(A.DESCRIBE), *topic(A.DESCRIBE, ORDERS, OTHER)],
        9,
    ),
    Case(
        "fetch all offsets",
        ask_fetch_all_offsets,
        [*group(A.DESCRIBE), *topic(A.DESCRIBE, ORDERS, OTHER)],
        9,
    ),
    Case(
        "fetch offsets of one",
        ask_fetch_offsets_of_one,
        [*group(A.DESCRIBE), *topic(A.DESCRIBE, ORDERS, OTHER)],
        7,
    ),
    Case("delete offsets", ask_delete_offsets, [*group(A.DELETE), *topic(A.READ)]),
    Case(
        "describe groups",
        lambda facts: describe_groups.DescribeGroupsRequest(
            groups=[GROUP, "no group"], include_authorized_operations=True
        ),
        [*group(A.DESCRIBE), *group(A.DESCRIBE, "no group"), *group(A.ALTER_CONFIGS)],
    ),
    Case("list groups", lambda facts: list_groups.ListGroupsRequest(), group(A.DESCRIBE)),
    Case("list all groups", lambda facts: list_groups.ListGroupsRequest(), cluster(A.DESCRIBE)),
    Case(
        "delete groups",
        lambda facts: delete_groups.DeleteGroupsRequest(groups_names=["no group"]),
        group(A.DELETE, "no group"),
    ),
    Case(
        "create topics",
        ask_create_topic("created"),
        [*topic(A.CREATE, "created"), *topic(A.DESCRIBE_CONFIGS, "created")],
    ),
    Case("create topics in the cluster", ask_create_topic("created2"), cluster(A.CREATE)),
    Case(
        "delete topics", ask_delete_topics, [*topic(A.DELETE, "doomed"), *topic(A.DESCRIBE, ABSENT)]
    ),
    Case("delete topics by id", ask_delete_topics_by_id, topic(A.DELETE, "doomed-by-id")),
    Case("delete topics of the cluster", ask_delete_topics, cluster(A.ALL)),
    Case("delete records", ask_delete_records, topic(A.DELETE)),
    Case("create partitions", ask_create_partitions, topic(A.ALTER, OTHER, ABSENT)),
    Case(
        "describe configs",
        ask_describe_configs,
        [*topic(A.DESCRIBE_CONFIGS), *cluster(A.DESCRIBE_CONFIGS)],
    ),
    Case("alter configs", ask_alter_configs, topic(A.ALTER_CONFIGS)),
    Case("alter some configs", ask_alter_some_configs, topic(A.ALTER_CONFIGS)),
    Case("producer id", ask_init(None), cluster(A.IDEMPOTENT_WRITE)),
    Case("producer id of a writer", ask_init(None), topic(A.WRITE, OTHER)),
    Case("producer id of a transactional id", ask_init("t2"), txn(A.WRITE, "t2")),
    Case("add partitions", ask_add_partitions, [*txn(A.WRITE), *topic(A.WRITE)], 3),
    Case("add partitions as a broker", ask_add_partitions_as_broker, cluster(A.CLUSTER_ACTION), 5),
    Case(
        "add offsets",
        lambda facts: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=TXN,
            producer_id=facts.producer_id,
            producer_epoch=facts.producer_epoch,
            group_id=GROUP,
        ),
        [*txn(A.WRITE), *group(A.READ)],
    ),
    Case(
        "commit in a transaction",
        ask_commit_in_transaction,
        [*txn(A.WRITE), *group(A.READ), *topic(A.READ)],
        3,
    ),
    Case(
        "end a transaction",
        lambda facts: end_txn.EndTxnRequest(
            transactional_id=TXN, producer_id=facts.producer_id, producer_epoch=facts.producer_epoch
        ),
        txn(A.WRITE),
        3,
    ),
    Case("write markers", ask_markers, cluster(A.CLUSTER_ACTION)),
    Case("write markers as an administrator", ask_markers, cluster(A.ALTER)),
    Case("describe producers", ask_producers, topic(A.READ)),
    Case(
        "describe transactions",
        lambda facts: describe_transactions.DescribeTransactionsRequest(
            transactional_ids=[TXN, "no id"]
        ),
        [*txn(A.DESCRIBE), *txn(A.DESCRIBE, "no id")],
    ),
    Case(
        "list transactions",
        lambda facts: list_transactions.ListTransactionsRequest(),
        txn(A.DESCRIBE),
    ),
    Case("create ACLs", ask_create_acl, cluster(A.ALTER)),
    Case(
        "describe ACLs",
        lambda facts: describe_acls.DescribeAclsRequest(**MADE),
        cluster(A.DESCRIBE),
    ),
    Case(
        "delete ACLs",
        lambda facts: delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**MADE)]),
        cluster(A.ALTER),
    ),
    Case(
        "log directories",
        lambda facts: describe_log_dirs.DescribeLogDirsRequest(topics=()),
        cluster(A.DESCRIBE),
    ),
    Case(
        "describe the cluster",
        lambda facts: describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True
        ),
        cluster(A.DESCRIBE),
    ),
    Case(
        "describe the quorum",
        lambda facts: describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.DescribeQuorumTopic(
                    topic_name="__cluster_metadata",
                    partitions=[describe_quorum.DescribeQuorumPartition(partition_index=0)],
                )
            ]
        ),
        cluster(A.DESCRIBE),
    ),
    Case(
        "add a voter",
        lambda facts: add_raft_voter.AddRaftVoterRequest(
            cluster_id="no such cluster",
            timeout_ms=1_000,
            voter_id=9,
            voter_directory_id=UNKNOWN_ID,
            listeners=[
                add_raft_voter.AddedVoterListener(name="CONTROLLER", host="127.0.0.1", port=9)
            ],
        ),
        cluster(A.ALTER),
    ),
    Case(
        "elect leaders",
        lambda facts: elect_leaders.ElectLeadersRequest(
            topic_partitions=[
                elect_leaders.TopicPartitions(topic=name, partitions=[0])
                for name in (ORDERS, ABSENT)
            ]
        ),
        cluster(A.ALTER),
    ),
    Case("move partitions", ask_move, cluster(A.ALTER)),
    Case(
        "list moves",
        lambda facts: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        cluster(A.DESCRIBE),
    ),
    Case(
        "list what has a configuration",
        lambda facts: list_config_resources.ListConfigResourcesRequest(resource_types=[9]),
        cluster(A.DESCRIBE_CONFIGS),
    ),
    Case(
        "update features",
        lambda facts: update_features.UpdateFeaturesRequest(
            feature_updates=[
                update_features.FeatureUpdateKey(feature="no.such", max_version_level=1)
            ]
        ),
        cluster(A.ALTER),
    ),
    Case(
        "unregister a broker",
        lambda facts: unregister_broker.UnregisterBrokerRequest(broker_id=99),
        cluster(A.ALTER),
    ),
    Case(
        "remove a voter",
        lambda facts: remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id="no such cluster", voter_id=9, voter_directory_id=UNKNOWN_ID
        ),
        cluster(A.ALTER),
    ),
    Case(
        "describe quotas",
        lambda facts: describe_client_quotas.DescribeClientQuotasRequest(),
        cluster(A.DESCRIBE_CONFIGS),
    ),
    Case("alter quotas", ask_alter_quotas, cluster(A.ALTER_CONFIGS)),
)


def show(response: Any) -> str:
    """Shows errors, names and authorized operations of an answer as one line."""
    return " ".join(sorted(_lines(response, "")))


def _lines(part: Any, at: str) -> list[str]:
    if not is_dataclass(part):
        return []
    lines, mine, label = [], [], at
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name in NAMES and isinstance(value, str):
            label = f"{at}[{value}]"
        elif each.name.endswith("error_code"):
            code = ErrorCode(value).name
            mine.append(code if each.name == "error_code" else f"{each.name}={code}")
        elif each.name.endswith("authorized_operations"):
            mine.append(f"{each.name}={value}")
    for each in fields(part):
        value = getattr(part, each.name)
        if isinstance(value, list | tuple) and each.name not in ("configs", "brokers", "nodes"):
            for item in value:
                lines += _lines(item, f"{label}.{each.name}")
    return [f"{label}:{','.join(mine)}", *lines]


def denials(response: Any) -> int:
    """Returns how many parts are refused for want of a permission."""
    if not is_dataclass(response):
        return 0
    count = 0
    for each in fields(response):
        value = getattr(response, each.name)
        if each.name == "error_code":
            count += value in DENIALS
        elif isinstance(value, list | tuple):
            count += sum(map(denials, value))
    return count
