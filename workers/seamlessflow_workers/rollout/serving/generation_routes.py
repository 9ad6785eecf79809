"""The routes `/inference/v1/generate` (one answer or a stream of server-sent events) and those that abort.

A client that disconnects cancels its handler, which aborts its sequence. A slow client gets larger chunks: each one
carries whatever has been sampled since the last one was written.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from seamlessflow_workers.rollout.serving import payloads
from seamlessflow_workers.rollout.serving.exchange import Answer, Handler, Reply, Request
from seamlessflow_workers.rollout.serving.guides import GUIDE_FIELD
from seamlessflow_workers.rollout.serving.payloads import REQUEST_ID_PREFIX, error_answer, json_answer
from seamlessflow_workers.rollout.serving.request import GenerateRequest, InvalidRequestError
from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence
from seamlessflow_workers.rollout.serving.served_engine import EngineFailedError, QueueFullError, ServedEngine

EVENT_STREAM = "text/event-stream; charset=utf-8"
BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)


class GenerationRoutes:
    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    def table(self) -> dict[tuple[str, str], Handler]:
        return {
            ("POST", "/inference/v1/generate"): self.generate,
            ("POST", "/inference/v1/abort_requests"): self.abort_listed,
            ("POST", "/abort_requests"): self.abort_listed_or_all,
        }

    async def generate(self, request: Request) -> Answer | None:
        try:
            body = self._engine.parse(request.body)
            sequence = self._engine.submit(body, await self._engine.matcher(body))
        except InvalidRequestError as error:
            return error_answer(
                status=HTTPStatus.BAD_REQUEST, kind="BadRequestError", message=str(error), field=error.field
            )
        except QueueFullError:
            return error_answer(status=HTTPStatus.SERVICE_UNAVAILABLE, message=BUSY)
        except EngineFailedError as error:
            return error_answer(
                status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=str(error)
            )
        try:
            if body.stream:
                await self._stream(request.reply, body, sequence)
                return None
            return await self._unary(body, sequence)
        finally:
            self._engine.forget(sequence)

    async def _unary(self, body: GenerateRequest, sequence: ServedSequence) -> Answer:
        while sequence.finish_reason is None:
            await sequence.changed.wait()
            sequence.changed.clear()
        if sequence.finish_reason is SequenceFinishReason.ERROR:
            if sequence.failure is not None:
                return error_answer(
                    status=HTTPStatus.BAD_REQUEST,
                    kind="BadRequestError",
                    message=sequence.failure,
                    field=GUIDE_FIELD,
                )
            message = f"the engine failed: {self._engine.failure}"
            return error_answer(
                status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=message
            )
        return json_answer(
            payloads.unary_content(
                sequence,
                model=self._engine.settings.model_name,
                is_packed=body.packed,
                return_prompt=bool(body.return_token_ids),
            )
        )

    async def _stream(self, reply: Reply, body: GenerateRequest, sequence: ServedSequence) -> None:
        await reply.begin(EVENT_STREAM)
        num_sent = 0
        finish_reason: SequenceFinishReason | None = None
        while finish_reason is None:
            await sequence.changed.wait()
            sequence.changed.clear()
            finish_reason = sequence.finish_reason  # read before the count: see the module `sequence`
            if finish_reason is SequenceFinishReason.ERROR:
                await reply.write(self._error_frame(sequence))
                break
            num_generated = sequence.num_generated
            frames = payloads.stream_frames(
                sequence,
                start=num_sent,
                end=num_generated,
                finish_reason=finish_reason,
                is_packed=body.packed,
                return_prompt=bool(body.return_token_ids),
            )
            num_sent = num_generated
            if frames:
                await reply.write(frames)
        if body.stream_options is not None and body.stream_options.include_usage:
            await reply.write(payloads.stream_usage_frame(sequence))
        await reply.end(payloads.STREAM_END)

    def _error_frame(self, sequence: ServedSequence) -> bytes:
        if sequence.failure is not None:
            return payloads.stream_error_frame(sequence.failure, field=GUIDE_FIELD)
        return payloads.stream_error_frame(f"the engine failed: {self._engine.failure}")

    async def abort_listed(self, request: Request) -> Answer:
        """Abort the requests with these answer ids (including the prefix). As in vLLM, unknown ids are no error."""
        ids = _requested_ids(request.body)
        if ids is None:
            message = "Missing 'request_ids' in request body"
            return error_answer(status=HTTPStatus.BAD_REQUEST, message=message, field="request_ids")
        self._abort(ids)
        return Answer()

    async def abort_listed_or_all(self, request: Request) -> Answer:
        ids = _requested_ids(request.body)
        if not ids:
            ids = [REQUEST_ID_PREFIX + request_id for request_id in self._engine.in_flight]
        self._abort(ids)
        return json_answer({"status": "aborted", "aborted": len(ids)})

    def _abort(self, ids: list[str]) -> None:
        in_flight = self._engine.in_flight
        sequences = [
            sequence
            for request_id in ids
            if request_id.startswith(REQUEST_ID_PREFIX)
            for sequence in in_flight.get(request_id.removeprefix(REQUEST_ID_PREFIX), ())
        ]
        if sequences:
            self._engine.abort(sequences)


def _requested_ids(raw: bytes) -> list[str] | None:
    try:
        body: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        ids = body.get("request_ids")
        return None if ids is None else msgspec.convert(ids, list[str])
    except msgspec.MsgspecError as error:
        raise InvalidRequestError(
            field="request_ids", message=f"expected {{'request_ids': [...]}}: {error}"
        ) from error
