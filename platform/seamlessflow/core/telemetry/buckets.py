"""The grid on which the points of a metric are gathered.

A bucket covers `width` steps and begins at a multiple of it; the width is a power of two. So a new point changes only
the newest bucket until the width doubles, and points that were rolled up on such a grid stay whole in every coarser
grid.
"""


def bucket_width(first: int, last: int, num_buckets: int) -> int:
    """Return the smallest width with which steps `first` to `last` touch at most `num_buckets` buckets.

    Two neighbouring steps may lie on both sides of every boundary up to the next power of two, so a single bucket can
    be as wide as twice the newest step: `bucket_width(7, 8, 1)` is 16.
    """
    if not 0 <= first <= last or num_buckets < 1:
        raise ValueError(f"no grid of {num_buckets} buckets over steps {first} to {last}")
    width = 1
    while last // width - first // width + 1 > num_buckets:
        width *= 2
    return width
