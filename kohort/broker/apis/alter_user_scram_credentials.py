"""AlterUserScramCredentials (API 51), version 0. As in Kafka, each user may have one change."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_HASHES,
    SCRAM_NUMBERS,
    ScramCredential,
)
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Problem = tuple[ErrorCode, str]


@serves(AlterUserScramCredentialsRequest, (0, 0))
async def alter_user_scram_credentials(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    scram = ctx.broker.cluster.security.credentials.scram
    changes: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    problems: dict[str, _Problem | None] = {}
    for change in changes:
        if change.name not in problems:
            problems[change.name] = _problem(scram, change)
        elif problems[change.name] is None:
            problems[change.name] = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
    for change in changes:
        if problems[change.name] is None:
            _apply(scram, change)
    return AlterUserScramCredentialsResponse(
        results=[
            _Result(user=user, error_message=None)
            if problem is None
            else _Result(user=user, error_code=problem[0], error_message=problem[1])
            for user, problem in problems.items()
        ]
    )


def _problem(
    scram: dict[tuple[str, str], ScramCredential], change: _Deletion | _Upsertion
) -> _Problem | None:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    mechanism = SCRAM_NUMBERS.get(change.mechanism)
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, _Upsertion):
        if change.iterations < MIN_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
        if change.iterations > MAX_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    elif (change.name, mechanism) not in scram:
        return (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return None


def _apply(scram: dict[tuple[str, str], ScramCredential], change: _Deletion | _Upsertion) -> None:
    mechanism = SCRAM_NUMBERS[change.mechanism]
    if isinstance(change, _Deletion):
        del scram[change.name, mechanism]
        return
    scram[change.name, mechanism] = ScramCredential.of_salted(
        SCRAM_HASHES[mechanism],
        bytes(change.salted_password),
        bytes(change.salt),
        change.iterations,
    )
