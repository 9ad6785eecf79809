"""How refusals name the numbers that divide another."""


def divisors_named(number: int) -> str:
    """Return all divisors: `1, 2, 3, 6` for 6."""
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)
