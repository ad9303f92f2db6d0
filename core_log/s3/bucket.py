"""One bucket: objects listed page by page, read in ranges, and written whole or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from headwater.core_log.foundation.database_errors import refusal_of
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.s3.settings import S3Settings

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


class ObjectGone(Exception):
    """The object is not there, or no longer the one that was asked for."""


class StoredObject(NamedTuple):
    key: str
    size: int
    etag: str
    modified_us: int


class Body(Protocol):
    """What is left of an object, as it arrives."""

    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class Bucket:
    """Connects with the first request. Failures become the two errors of whoever uses it: one
    that time cures, one that a person has to."""

    def __init__(
        self,
        name: str,
        settings: S3Settings,
        *,
        unavailable: type[HeadwaterError],
        rejected: type[HeadwaterError],
    ) -> None:
        self.name, self._settings = name, settings
        self._unavailable, self._rejected = unavailable, rejected

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Every object below `prefix`, in the order of their keys."""
        with self._failures():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(
                Bucket=self.name,
                Prefix=prefix,
                PaginationConfig={"PageSize": self._settings.page_keys},
            ):
                for each in page.get("Contents", ()):
                    modified_us = round(each["LastModified"].timestamp() * 1_000_000)
                    etag = each["ETag"].strip('"')
                    yield StoredObject(each["Key"], each["Size"], etag, modified_us)

    def open(self, key: str, *, etag: str, start: int = 0, size: int | None = None) -> Body:
        """The object from `start` on; raises `ObjectGone` if it is no longer that very one."""
        end = "" if size is None else start + size - 1
        with self._failures():
            answer = self._client.get_object(
                Bucket=self.name, Key=key, Range=f"bytes={start}-{end}", IfMatch=f'"{etag}"'
            )
            body: Body = answer["Body"]
            return body

    def read(self, key: str) -> bytes | None:
        """A whole small object; None when there is none."""
        with self._failures():
            try:
                content: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
            except ClientError as error:
                if code_of(error) in ABSENT:
                    return None
                raise
            return content

    def read_from(self, body: Body, size: int) -> bytes:
        """At most `size` bytes of an opened object; a cut connection is a failure, too."""
        with self._failures():
            return body.read(size)

    def put(self, key: str, content: bytes) -> None:
        with self._failures():
            self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def put_file(self, key: str, path: Path) -> None:
        """Sent in parts where it is large; it becomes visible as a whole."""
        part_bytes = self._settings.part_bytes
        transfer = TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, use_threads=False
        )
        with self._failures():
            self._client.upload_file(str(path), self.name, key, Config=transfer)

    def create(self, key: str, content: bytes) -> bool:
        """Puts it only if there is no object of that key yet; whether it did."""
        with self._failures():
            try:
                self._client.put_object(Bucket=self.name, Key=key, Body=content, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) in CHANGED:
                    return False
                raise
            return True

    def remove(self, keys: Sequence[str]) -> None:
        with self._failures():
            for first in range(0, len(keys), DELETE_KEYS_MAX):
                named = [{"Key": key} for key in keys[first : first + DELETE_KEYS_MAX]]
                self._client.delete_objects(
                    Bucket=self.name, Delete={"Objects": named, "Quiet": True}
                )

    def check(self) -> None:
        """Whether the bucket is there and may be listed."""
        with self._failures():
            self._client.list_objects_v2(Bucket=self.name, MaxKeys=1)

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
                raise self._rejected("the bucket does not exist", bucket=self.name) from error
            if code in ABSENT | CHANGED:
                raise ObjectGone(code) from error
            passes = code in PASSING or status >= 500
            raise self._failure("the bucket's store refuses", code, passes=passes) from error
        except NoCredentialsError as error:
            raise self._rejected(
                "there are no credentials for the bucket",
                hint="give s3.access_key and s3.secret_key by reference, or set AWS_PROFILE",
                bucket=self.name,
            ) from error
        except (BotoCoreError, OSError) as error:
            beneath = getattr(error, "kwargs", {}).get("error") or error
            known = refusal_of(beneath)
            reason = known.reason if known else type(error).__name__
            raise self._unavailable(
                "the bucket's store cannot be reached",
                hint="start it, or correct `endpoint` and `region` of `s3`",
                bucket=self.name,
                reason=reason,
                endpoint=self._settings.endpoint or "Amazon's",
            ) from error

    def _failure(self, problem: str, reason: str, *, passes: bool) -> HeadwaterError:
        kind = self._unavailable if passes else self._rejected
        return kind(problem, bucket=self.name, reason=reason, endpoint=self._settings.endpoint)


@cache
def client_of(settings: S3Settings) -> Any:
    """One per way to reach a store, since making one costs more than many requests; threads may
    share it."""
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
