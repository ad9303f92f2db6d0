"""Objects of a bucket in S3: listed page by page, read in ranges, and written as a whole."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from headwater.core_log.foundation.database_errors import refusal_of
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import S3_SCHEME, ObjectGone, StoredObject, StoreErrors

ABSENT = {"NoSuchKey", "404", "NotFound"}
CHANGED = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
PASSING = {
    "InternalError",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
}
"""Codes of refusals that time cures; the server's own failures (5xx) count as well."""
DELETE_KEYS_MAX = 1_000


class Body(Protocol):
    """The rest of an object while it arrives."""

    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class BucketStore:
    """Objects below a prefix. It connects with the first request."""

    local_root = None

    def __init__(self, name: str, prefix: str, settings: S3Settings, errors: StoreErrors) -> None:
        self.name, self._settings, self._errors = name, settings, errors
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    def objects(
        self, prefix: str, *, may_enter: Callable[[str], bool] | None = None
    ) -> list[StoredObject]:
        """A bucket has no directories, so that `may_enter` is not asked."""
        found = []
        with self._failures():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(
                Bucket=self.name,
                Prefix=self._prefix + prefix,
                PaginationConfig={"PageSize": self._settings.page_keys},
            ):
                for each in page.get("Contents", ()):
                    name = each["Key"].removeprefix(self._prefix)
                    modified_us = round(each["LastModified"].timestamp() * 1_000_000)
                    found.append(
                        StoredObject(name, each["Size"], modified_us, each["ETag"].strip('"'))
                    )
        return found

    def open(self, each: StoredObject) -> "BucketReader":
        return BucketReader(self, each)

    def open_body(self, each: StoredObject, *, start: int, size: int | None = None) -> Body:
        """The object from `start` on; raises `ObjectGone` if it is no longer that very one."""
        end = "" if size is None else start + size - 1
        with self._failures():
            answer = self._client.get_object(
                Bucket=self.name,
                Key=self._prefix + each.name,
                Range=f"bytes={start}-{end}",
                IfMatch=f'"{each.version}"',
            )
            body: Body = answer["Body"]
            return body

    def read_from(self, body: Body, size: int) -> bytes:
        """At most `size` bytes; a lost connection is a failure, too."""
        with self._failures():
            return body.read(size)

    def read(self, name: str) -> bytes | None:
        with self._failures():
            try:
                answer = self._client.get_object(Bucket=self.name, Key=self._prefix + name)
                content: bytes = answer["Body"].read()
            except ClientError as error:
                if code_of(error) in ABSENT:
                    return None
                raise
            return content

    def put(self, name: str, content: bytes) -> None:
        with self._failures():
            self._client.put_object(Bucket=self.name, Key=self._prefix + name, Body=content)

    def create(self, name: str, content: bytes) -> bool:
        key = self._prefix + name
        with self._failures():
            try:
                self._client.put_object(Bucket=self.name, Key=key, Body=content, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) in CHANGED:
                    return False
                raise
            return True

    def upload(self, name: str, path: Path) -> None:
        """A large file is sent in parts."""
        part_bytes = self._settings.part_bytes
        transfer = TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, use_threads=False
        )
        with self._failures():
            self._client.upload_file(str(path), self.name, self._prefix + name, Config=transfer)

    def remove(self, names: Sequence[str]) -> None:
        with self._failures():
            for first in range(0, len(names), DELETE_KEYS_MAX):
                keys = [
                    {"Key": self._prefix + name} for name in names[first : first + DELETE_KEYS_MAX]
                ]
                self._client.delete_objects(
                    Bucket=self.name, Delete={"Objects": keys, "Quiet": True}
                )

    def check(self, prefix: str = "", *, writes: bool) -> None:
        """Only whether the bucket exists and may be listed: to write is to ask for it."""
        with self._failures():
            self._client.list_objects_v2(Bucket=self.name, MaxKeys=1)

    def address(self, name: str) -> str:
        return f"{S3_SCHEME}{self.name}/{self._prefix}{name}"

    @property
    def _client(self) -> Any:
        return client_of(self._settings)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code, status = code_of(error), error.response["ResponseMetadata"]["HTTPStatusCode"]
            if code == "NoSuchBucket":
                raise self._errors.rejected(
                    "the bucket does not exist", bucket=self.name
                ) from error
            if code in ABSENT | CHANGED:
                raise ObjectGone(code) from error
            passes = code in PASSING or status >= 500
            raise self._failure(
                "the bucket's store refuses the request", code, passes=passes
            ) from error
        except NoCredentialsError as error:
            raise self._errors.rejected(
                "the bucket has no credentials",
                hint="give s3.access_key and s3.secret_key by reference, or set AWS_PROFILE",
                bucket=self.name,
            ) from error
        except (BotoCoreError, OSError) as error:
            beneath = getattr(error, "kwargs", {}).get("error") or error
            known = refusal_of(beneath)
            reason = known.reason if known else type(error).__name__
            raise self._errors.unavailable(
                "the bucket's store cannot be reached",
                hint="start it, or correct `endpoint` and `region` of `s3`",
                bucket=self.name,
                reason=reason,
                endpoint=self._settings.endpoint or "Amazon's",
            ) from error

    def _failure(self, problem: str, reason: str, *, passes: bool) -> HeadwaterError:
        kind = self._errors.unavailable if passes else self._errors.rejected
        return kind(problem, bucket=self.name, reason=reason, endpoint=self._settings.endpoint)


class BucketReader:
    """Asks for the rest of the object where reading begins, and continues in that answer while it
    is read in order."""

    def __init__(self, store: BucketStore, opened: StoredObject) -> None:
        self.object, self._store = opened, store
        self._body: Body | None = None
        self._position = 0

    def read(self, position: int, size: int) -> bytes:
        if position >= self.object.size:
            return b""
        if self._body is None or position != self._position:
            self.close()
            self._body = self._store.open_body(self.object, start=position)
            self._position = position
        content = self._store.read_from(self._body, size)
        self._position += len(content)
        return content

    def read_range(self, position: int, size: int) -> bytes:
        size = min(size, self.object.size - position)
        if size <= 0:
            return b""
        body = self._store.open_body(self.object, start=position, size=size)
        return self._store.read_from(body, size)

    def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            with suppress(OSError):
                body.close()


@cache
def client_of(settings: S3Settings) -> Any:
    """One for each set of settings: to make one costs more than many requests. Threads share it."""
    config = Config(
        connect_timeout=settings.timeout_ms / 1_000,
        read_timeout=settings.timeout_ms / 1_000,
        retries={"total_max_attempts": settings.retries + 1, "mode": "standard"},
        s3={"addressing_style": "path" if settings.path_style else "auto"},
    )
    session = boto3.session.Session(
        aws_access_key_id=secret(settings.access_key),
        aws_secret_access_key=secret(settings.secret_key),
        aws_session_token=secret(settings.session_token),
        region_name=settings.region or None,
    )
    return session.client("s3", endpoint_url=settings.endpoint or None, config=config)


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def secret(value: Any) -> str | None:
    return None if value is None else value.get_secret_value()
