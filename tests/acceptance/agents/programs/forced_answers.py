"""What the programs that force answers share: the question, the form of an answer, and a tool."""

import os
from typing import Literal

from pydantic import BaseModel

QUESTION = "How is the weather in Rome?"


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    is_sure: bool
    sky: Literal["clear", "cloudy"]
    degrees: int


def look_up(city: str, degrees: int) -> str:
    """Look up the weather of a city.

    Args:
        city: its name
        degrees: how warm it is expected to be
    """
    return f"It is as warm in {city} as you say: {degrees}"


def base_url() -> str:
    return os.environ["OPENAI_BASE_URL"]
