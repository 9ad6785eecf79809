"""Heads of requests: their lines, and what may not be in them."""

import pytest

from seamlessflow.runtime.http.heads import address_of, request_head, request_whole

ADDRESS = address_of("http://gateway:81/prefix/")


def test_a_request_names_its_host_and_has_a_length() -> None:
    head = request_head("POST", ADDRESS, "/v1/jobs", {"A": "b"})
    assert request_whole(head, b"{}") == (
        b"POST /prefix/v1/jobs HTTP/1.1\r\nHost: gateway:81\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize("value", ["a\r\nB: c", "é", "\0"])
def test_a_value_adds_no_line_and_is_ascii(value: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        request_head("GET", ADDRESS, "/", {"A": value})
