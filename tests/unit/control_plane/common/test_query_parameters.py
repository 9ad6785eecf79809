"""What query parameters accept, and how a refusal names the parameter, the value and the accepted ones."""

import re
from enum import StrEnum

import pytest
from rest_framework.serializers import ValidationError

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.http import query


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Everything(query.Query):
    flag = query.FlagParameter("")
    number = query.IntegerParameter("", least=1, most=5, default=2)
    word = query.WordParameter("", words=Colour)
    words = query.WordsParameter("", words=list(Colour))
    text = query.TextParameter("", default="")
    at = query.MomentParameter("")


def test_values_are_read_and_absent_ones_have_their_defaults() -> None:
    given = {
        "flag": "true",
        "word": "red",
        "words": "blue,red",
        "text": " a ",
        "at": "2026-01-31T12:00:00 00:00",
    }
    values = query.query_read(given, Everything)
    assert values.pop("at").isoformat() == "2026-01-31T12:00:00+00:00"
    assert values == {"flag": True, "number": 2, "word": "red", "words": ["blue", "red"], "text": " a "}
    assert query.query_read({"flag": "0", "text": ""}, Everything)["flag"] is False
    assert query.query_read({}, Everything)["flag"] is None


@pytest.mark.parametrize(
    "name, value, refusal",
    [
        ("flag", "yes", "'yes' is not accepted; accepted: true, false"),
        ("number", "6", "'6' is not accepted; accepted: a whole number from 1 to 5"),
        ("number", "", "'' is not accepted"),
        ("word", "green", "'green' is not accepted; accepted: red, blue"),
        ("words", "red,green", "'green' is not accepted; accepted: red, blue"),
        ("at", "2026-01-31T12:00:00", "accepted: an RFC 3339 moment"),
        ("text", "\x00", "text"),
        ("other", "1", "is not a parameter of this address; accepted: at, flag, number, text, word, words"),
    ],
)
def test_a_refusal_names_what_is_accepted(name: str, value: str, refusal: str) -> None:
    with pytest.raises((ApplicationError, ValidationError), match=re.escape(refusal)) as refused:
        query.query_read({name: value}, Everything)
    assert name in str(refused.value)
