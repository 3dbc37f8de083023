"""The tokens of an SQL92 expression, one at a time.

They are those of RocketMQ 4.9.8 SelectorParser, with its surprises: a comment that begins with `--`
needs a line end to be one (without it the dashes are two signs), a number has no leading zeros
(`007` is three numbers), and only six signs and five kinds of blank exist outside of strings.

Text is cut as far as it is asked for. What follows a complete expression is never read, so it
need not be made of tokens.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.broker.pulling.sql.errors import SqlSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_CHARS_MAX: Final = 40


class TokenKind(enum.Enum):
    """What a token is; for reserved words and signs its text says the rest."""

    WORD = "a reserved word"
    NAME = "a property name"
    STRING = "a string"
    DECIMAL = "a whole number"
    FLOAT = "a number with a fraction or an exponent"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A piece of the text."""

    kind: TokenKind
    text: str
    """As written; reserved words in upper case."""
    position: int

    def shown(self) -> str:
        """Return how to name it in a sentence."""
        if self.kind is TokenKind.END:
            return "the end of the expression"
        text = self.text
        return repr(text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}...")


RESERVED_WORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")
)

# The order matters: a number with a fraction begins with a whole one, and two dashes may be a
# comment. Otherwise the alternatives begin with different characters.
_BLANK: Final = r"[ \t\n\r\f]+ | /\*(?s:.*?)\*/"
_LINE_COMMENT: Final = r"--[^\n\r]*+(?:\r\n|\n|\r)"
_OTHERS: Final = r"""
      (?P<FLOAT> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
               | \.[0-9]+(?:[eE][+-]?[0-9]+)?
               | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
    | (?P<STRING> '[^']*(?:''[^']*)*' )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SIGN> <> | <= | >= | [<>=(),+-] )
    """
_TOKEN: Final = re.compile(rf"(?P<SKIPPED> {_BLANK} | {_LINE_COMMENT} ) | {_OTHERS}", re.VERBOSE)
_TOKEN_OF_LAST_LINE: Final = re.compile(rf"(?P<SKIPPED> {_BLANK} ) | {_OTHERS}", re.VERBOSE)
"""Two dashes are two signs here; trying a comment at each would read to the end each time."""


def read_tokens(text: str) -> Iterator[Token]:
    """Give the tokens of `text` and then `END`; raise `SqlSyntaxError` where there is none."""
    last_line = max(text.rfind("\n"), text.rfind("\r"))
    position = 0
    while position < len(text):
        pattern = _TOKEN if position < last_line else _TOKEN_OF_LAST_LINE
        found = pattern.match(text, position)
        if found is None:
            raise SqlSyntaxError(_complaint(text, position), position)
        kind = found.lastgroup
        if kind == "NAME" and found[0].upper() in RESERVED_WORDS:
            yield Token(TokenKind.WORD, found[0].upper(), position)
        elif kind is not None and kind != "SKIPPED":
            yield Token(TokenKind[kind], found[0], position)
        position = found.end()
    yield Token(TokenKind.END, "", position)


def _complaint(text: str, position: int) -> str:
    if text[position] == "'":
        return "a string is not closed"
    if text.startswith("/*", position):
        return "a comment is not closed"
    return f"{text[position]!r} has no meaning here"
