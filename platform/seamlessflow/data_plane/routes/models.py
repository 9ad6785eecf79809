"""`GET /v1/models` and `/v1/models/{model}`: a session sees one model, its job, in OpenAI's or in Anthropic's form.

Takes a session and the headers of a request; returns a card or a list with it. Clients size their conversations by the
context's length on the card.
"""

import time
from datetime import UTC, datetime
from http import HTTPStatus

from seamlessflow.core.protocol.anthropic_messages import MessageModel, MessageModelList
from seamlessflow.core.protocol.openai_chat import ModelCard, ModelList
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.http import Scope
from seamlessflow.data_plane.routes.refusals import is_of_anthropic
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession


def model_list(scope: Scope, session: LiveSession) -> ModelList | MessageModelList:
    card = _card(scope, session)
    if isinstance(card, ModelCard):
        return ModelList(data=[card])
    return MessageModelList(data=[card], first_id=card.id, last_id=card.id)


def model_named(scope: Scope, session: LiveSession, name: str) -> ModelCard | MessageModel:
    """Return the card of the session's model. Raises ApiError (404) for another name."""
    if name == session.job.name:
        return _card(scope, session)
    raise ApiError(
        HTTPStatus.NOT_FOUND,
        f"The model {name!r} does not exist; the model of this session is {session.job.name!r}.",
        param="model",
        code="model_not_found",
    )


def _card(scope: Scope, session: LiveSession) -> ModelCard | MessageModel:
    spec, name = session.job.spec, session.job.name
    length = spec.model.max_model_len
    if not is_of_anthropic(scope):
        return ModelCard(id=name, created=int(time.time()), max_model_len=length)
    return MessageModel(
        id=name,
        display_name=name,
        created_at=datetime.now(UTC).replace(microsecond=0),
        max_input_tokens=length,
        max_tokens=min(length, spec.rollout.max_tokens_per_turn),
    )
