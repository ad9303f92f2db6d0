"""Plays a text scenario on one consumer group: a line is a step, the indented ones its effects."""

from dataclasses import dataclass, field

from headwater.core_log.groups.group import Group
from headwater.core_log.groups.membership import (
    Effects,
    JoinAnswer,
    Joining,
    JoinProtocol,
    StoredGroup,
    SyncAnswer,
    Syncing,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.scenario_text import play, words_and_options

SESSION_MS, REBALANCE_MS = 10_000, 60_000


@dataclass
class GroupScenario:
    """Steps: `group [delay=MS] [size=N]`,
    `join CLIENT [MEMBER] [instance=I] [protocols=A,B] [type=T] [session=MS] [rebalance=MS] [v=N]`,
    `sync MEMBER GENERATION [protocol=P] [MEMBER=SHARE]...`, `stored`, `not stored`,
    `heartbeat MEMBER GENERATION`, `leave MEMBER...` (`instance:I` by instance alone),
    `at MS` (the time passes, and a tick comes), `commit MEMBER GENERATION [transactional]`,
    `restart` (from what was stored last), `unload`.
    """

    group: Group = field(default_factory=lambda: Group("g"))
    now_ms: int = 0
    stored: StoredGroup | None = None
    member_count: int = 0
    shown_state: str = ""

    def step(self, line: str) -> list[str]:
        words, options = words_and_options(line)
        command = getattr(self, f"play_{words[0].replace('-', '_')}")
        return [*command(words[1:], options), *self.state()]

    def state(self) -> list[str]:
        group = self.group
        parts = [group.state.value, f"generation={group.generation}"]
        if group.roster.leader:
            parts.append(f"leader={group.roster.leader}")
        if group.roster.members:
            parts.append(f"members={','.join(group.roster.members)}")
        if group.rebalance.expected:
            parts.append(f"expected={','.join(group.rebalance.expected)}")
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is not None:
            parts.append(f"next={deadline_ms}")
        state = " ".join(parts)
        changed, self.shown_state = state != self.shown_state, state
        return [f"is {state}"] if changed else []

    def play_group(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.group.rebalance.initial_delay_ms = int(options.get("delay", 0))
        self.group.size_max = int(options.get("size", 100))
        return []

    def play_join(self, words: list[str], options: dict[str, str]) -> list[str]:
        client, version = words[0], int(options.get("v", 9))
        protocols = [each for each in options.get("protocols", "range").split(",") if each]
        joining = Joining(
            member_id=words[1] if len(words) > 1 else "",
            instance_id=options.get("instance"),
            client_id=client,
            client_host="/127.0.0.1",
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(JoinProtocol(each, f"{client}/{each}".encode()) for each in protocols),
            session_timeout_ms=int(options.get("session", SESSION_MS)),
            rebalance_timeout_ms=int(options.get("rebalance", REBALANCE_MS)),
            takes_member_id_first=version >= 4,
            may_skip_assignment=version >= 9,
        )
        self.member_count += 1
        return self.shown(
            self.group.join(
                joining,
                client,
                now_ms=self.now_ms,
                new_member_id=f"{options.get('instance', client)}-{self.member_count}",
            )
        )

    def play_sync(self, words: list[str], options: dict[str, str]) -> list[str]:
        protocol = options.pop("protocol", None)
        syncing = Syncing(
            member_id=words[0],
            generation=int(words[1]),
            instance_id=options.pop("instance", None),
            protocol_name=protocol,
            assignments={member: share.encode() for member, share in options.items()},
        )
        return self.shown(self.group.sync(syncing, words[0], now_ms=self.now_ms))

    def play_stored(self, words: list[str], options: dict[str, str]) -> list[str]:
        assert self.stored is not None, "nothing was to be stored"
        return self.shown(self.group.on_stored(self.stored, now_ms=self.now_ms))

    def play_not(self, words: list[str], options: dict[str, str]) -> list[str]:
        assert self.stored is not None, "nothing was to be stored"
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.shown(self.group.on_store_failed(self.stored, refused, now_ms=self.now_ms))

    def play_heartbeat(self, words: list[str], options: dict[str, str]) -> list[str]:
        instance_id = options.get("instance")
        return [
            self.group.heartbeat(
                words[0], int(words[1]), instance_id=instance_id, now_ms=self.now_ms
            ).name
        ]

    def play_leave(self, words: list[str], options: dict[str, str]) -> list[str]:
        leaving: list[tuple[str, str | None]] = [
            ("", each.removeprefix("instance:")) if each.startswith("instance:") else (each, None)
            for each in words
        ]
        errors, effects = self.group.leave(leaving, now_ms=self.now_ms)
        return [" ".join(error.name for error in errors), *self.shown(effects)]

    def play_at(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.now_ms = int(words[0])
        return self.shown(self.group.on_tick(self.now_ms))

    def play_commit(self, words: list[str], options: dict[str, str]) -> list[str]:
        member_id = "" if words[0] == "nobody" else words[0]
        error = self.group.check_offset_commit(
            member_id, None, int(words[1]), is_transactional="transactional" in words
        )
        return [error.name]

    def play_restart(self, words: list[str], options: dict[str, str]) -> list[str]:
        assert self.stored is not None, "nothing was stored"
        self.group = Group.restore("g", self.stored, now_ms=self.now_ms)
        return []

    def play_unload(self, words: list[str], options: dict[str, str]) -> list[str]:
        return self.shown(self.group.on_unload())

    def shown(self, effects: Effects) -> list[str]:
        lines = []
        if effects.store is not None:
            self.stored = effects.store
            shares = [f"{m.member_id}={m.assignment.decode()}" for m in effects.store.members]
            lines.append(f"store generation={effects.store.generation} {' '.join(shares)}".strip())
        for ticket, answer in effects.answers:
            lines.append(f"{ticket} <- {shown_answer(answer)}")
        return lines


def shown_answer(answer: JoinAnswer | SyncAnswer) -> str:
    if answer.error is not ErrorCode.NONE:
        member_id = answer.member_id if isinstance(answer, JoinAnswer) else ""
        return f"{answer.error.name} {member_id}".strip()
    if isinstance(answer, SyncAnswer):
        return f"share {answer.assignment.decode() or 'nothing'} by {answer.protocol_name}"
    parts = [f"member {answer.member_id} of generation {answer.generation}"]
    parts.append(f"led by {answer.leader} by {answer.protocol_name}")
    if answer.members:
        told = " ".join(f"{m.member_id}:{m.metadata.decode()}" for m in answer.members)
        parts.append(f"told of {told}")
    if answer.skip_assignment:
        parts.append("keeping the assignment")
    return ", ".join(parts)


def replay(text: str) -> str:
    return play(text, GroupScenario().step)
