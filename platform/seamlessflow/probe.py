"""`python -m seamlessflow.probe URL`: exit status 0 while the URL is answered with 2xx, for containers' health checks.

Standard library only: it runs every few seconds.
"""

import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4.0


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not arguments[0].startswith(("http://", "https://")):
        print("usage: python -m seamlessflow.probe http://HOST:PORT/PATH", file=sys.stderr)
        return 2
    try:
        urllib.request.urlopen(arguments[0], timeout=TIMEOUT_S).close()  # noqa: S310 - the scheme is checked
    except (urllib.error.URLError, OSError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
