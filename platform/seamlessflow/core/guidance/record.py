"""The record of a guided answer: all that a trainer needs, beside the tokens, to compute the same masks again."""

import msgspec

from seamlessflow.core.guidance.guide import Guide, GuideKind
from seamlessflow.core.guidance.masks import GuidedBy


class GuideRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The guide of an answer, and who computed its masks. The fields are stored in rows and batches."""

    kind: GuideKind
    text: str
    end_token_ids: tuple[int, ...]
    digest: str  # of the three above
    library: str  # name and version
    tokenizer: str  # SHA-256 of the model's tokenizer.json, hex
    first: int = 0  # the answer's first guided token

    @property
    def guide(self) -> Guide:
        return Guide(self.kind, self.text, self.end_token_ids)

    @property
    def guided_by(self) -> GuidedBy:
        return GuidedBy(self.library, self.tokenizer, self.end_token_ids)


def guide_record(kind: GuideKind, text: str, guided_by: GuidedBy, *, first: int = 0) -> GuideRecord:
    """Record a guide with the engine's report of its masks."""
    return GuideRecord(
        kind=kind,
        text=text,
        end_token_ids=guided_by.end_token_ids,
        digest=Guide(kind, text, guided_by.end_token_ids).digest,
        library=guided_by.library,
        tokenizer=guided_by.tokenizer,
        first=first,
    )
