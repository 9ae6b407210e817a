"""A dict that prints itself as an aligned table: the answers of `show_config` and `explain`."""


class Report(dict):
    """Facts by name; ``str()`` and ``repr()`` give one line a fact."""

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {_text(value)}" for name, value in self.items())

    __repr__ = __str__


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}"
