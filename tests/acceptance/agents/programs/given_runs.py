"""What the programs share: the runs that a test gives them on standard input, the questions and the tool."""

import json
import os
import sys
from collections.abc import Callable

QUESTIONS = ("«weather» Which is warmest: Oslo, Rome or Bern?", "Are you sure?")
SYSTEM = "Use the tool."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WARMTH = {"Oslo": "3.5", "Rome": "21.5", "Bern": "9"}

# Takes the API and whether to stream; returns the answers to the questions and the number of streamed pieces of text.
Talk = Callable[[str, bool], tuple[list[str], int]]

cities: list[str] = []


def weather(city: str) -> str:
    """Look up the temperature of a city.

    Args:
        city: its name
    """
    cities.append(city)
    return WARMTH[city]


def run_all(talk: Talk) -> None:
    """Talk once per given run, and print what it led to as a line of JSON."""
    for run in json.load(sys.stdin):
        os.environ.update(run["environ"])
        cities.clear()
        answers, num_pieces = talk(run["api"], run["is_streamed"])
        print(json.dumps({"answers": answers, "cities": sorted(cities), "num_pieces": num_pieces}))
