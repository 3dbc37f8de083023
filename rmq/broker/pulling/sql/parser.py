"""From the text of an SQL92 expression to its tree.

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison  unary { > unary | >= unary | < unary | <= unary
                      | [NOT] BETWEEN unary AND unary | [NOT] IN ( string {, string} ) }
    unary       + unary | - unary | NOT unary | primary
    primary     string | number | TRUE | FALSE | NULL | name | ( or )

The grammar, and what it refuses to compare, are those of RocketMQ 4.9.8 (SelectorParser,
ComparisonExpression), with its surprises: NOT binds tighter than a comparison, `-5` is not a
literal (so the bounds of BETWEEN are not checked when one is negative), and whatever follows a
complete expression is ignored.

Ours are the limits. They keep the work for one message, and the depth of calls it takes, within
bounds that no expression written for a purpose comes near to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.broker.pulling.sql.errors import SqlSyntaxError
from rmq.broker.pulling.sql.nodes import (
    CONDITIONS,
    CONSTANTS,
    And,
    Equal,
    In,
    IsNull,
    Literal,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Ordered,
    Ordering,
    Property,
    Text,
    Truth,
    as_one_type,
)
from rmq.broker.pulling.sql.numbers import I32_MAX, I64_MAX
from rmq.broker.pulling.sql.tokens import Token, TokenKind, read_tokens

if TYPE_CHECKING:
    from rmq.broker.pulling.sql.nodes import Condition, Value

CHARS_MAX: Final = 32_768
OPERANDS_MAX: Final = 512
"""Names and literals, those inside of IN lists not counted."""
NESTING_MAX: Final = 64
"""Parentheses and unary operators inside of each other; also comparisons of comparisons."""

_DECIMAL_DIGITS_MAX: Final = len(str(I64_MAX))
_LITERALS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERINGS: Final = {ordering.value: ordering for ordering in Ordering}


class ParsedExpression(NamedTuple):
    """An expression that makes sense."""

    condition: Condition
    names: frozenset[str]
    """The properties it reads."""


def parse_expression(text: str) -> ParsedExpression:
    """Return the tree of an expression; raise `SqlSyntaxError` if it is none."""
    if len(text) > CHARS_MAX:
        raise SqlSyntaxError(f"{len(text)} characters, of at most {CHARS_MAX}", CHARS_MAX)
    parser = _Parser(text)
    return ParsedExpression(parser.expression(), frozenset(parser.names))


@final
class _Parser:
    """Reads one expression, always one token ahead."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self._tokens = read_tokens(text)
        self._next = next(self._tokens)
        self._operands = 0
        self._nesting = 0
        self._chained = 0

    def expression(self) -> Condition:
        start = self._next
        return _as_condition(self._or(), start)

    # --- logic -----------------------------------------------------------------------------

    def _or(self) -> Value:
        start = self._next
        first = self._and()
        if not self._is_word("OR"):
            return first
        terms = [_as_condition(first, start)]
        while self._is_word("OR"):
            self._advance()
            start = self._next
            terms.append(_as_condition(self._and(), start))
        return Or(tuple(terms))

    def _and(self) -> Value:
        start = self._next
        first = self._equality()
        if not self._is_word("AND"):
            return first
        terms = [_as_condition(first, start)]
        while self._is_word("AND"):
            self._advance()
            start = self._next
            terms.append(_as_condition(self._equality(), start))
        return And(tuple(terms))

    # --- comparisons -----------------------------------------------------------------------

    def _equality(self) -> Value:
        left = self._comparison()
        is_first = True
        while self._is_sign("=", "<>") or self._is_word("IS"):
            operator = self._advance()
            self._count_chained(is_first, operator)
            is_first = False
            if operator.text == "IS":
                left = self._is_null(left)
            else:
                equal = _equal(left, self._comparison(), operator)
                left = Not(equal) if operator.text == "<>" else equal
        return left

    def _is_null(self, operand: Value) -> Condition:
        is_not = self._is_word("NOT")
        if is_not:
            self._advance()
        self._expect_word("NULL")
        return Not(IsNull(operand)) if is_not else IsNull(operand)

    def _comparison(self) -> Value:
        left = self._unary()
        is_first = True
        while self._is_sign(*_ORDERINGS) or self._is_word("NOT", "BETWEEN", "IN"):
            operator = self._advance()
            self._count_chained(is_first, operator)
            is_first = False
            ordering = _ORDERINGS.get(operator.text)
            if ordering is not None:
                left = _ordered(ordering, left, self._unary(), operator)
            elif operator.text == "NOT":
                left = self._after_not(left)
            elif operator.text == "BETWEEN":
                left = self._between(left, operator)
            else:
                left = self._in(left, operator)
        return left

    def _after_not(self, left: Value) -> Condition:
        operator = self._advance()
        if operator.kind is TokenKind.WORD and operator.text == "BETWEEN":
            return self._not_between(left, operator)
        if operator.kind is TokenKind.WORD and operator.text == "IN":
            return Not(self._in(left, operator))
        raise _unexpected(operator, "BETWEEN or IN after NOT")

    def _between(self, value: Value, operator: Token) -> Condition:
        low, high = self._bounds()
        # Only of literals: a bound with a sign, or taken from a property, is not known now.
        if isinstance(low, Number) and isinstance(high, Number):
            least, greatest = as_one_type(low, high)
            if greatest < least:
                raise SqlSyntaxError(
                    "the first bound of BETWEEN is the greater one", operator.position
                )
        return And(
            (
                _ordered(Ordering.GREATER_OR_EQUAL, value, low, operator),
                _ordered(Ordering.LESS_OR_EQUAL, value, high, operator),
            )
        )

    def _not_between(self, value: Value, operator: Token) -> Condition:
        low, high = self._bounds()
        return Or(
            (
                _ordered(Ordering.LESS, value, low, operator),
                _ordered(Ordering.GREATER, value, high, operator),
            )
        )

    def _bounds(self) -> tuple[Value, Value]:
        low = self._unary()
        self._expect_word("AND")
        return low, self._unary()

    def _in(self, operand: Value, operator: Token) -> In:
        self._expect_sign("(")
        elements = {self._string()}
        while self._is_sign(","):
            self._advance()
            elements.add(self._string())
        self._expect_sign(")")
        if not isinstance(operand, Property):
            raise SqlSyntaxError("IN needs a property on its left", operator.position)
        return In(operand, frozenset(elements))

    # --- operands --------------------------------------------------------------------------

    def _unary(self) -> Value:
        if not (self._is_sign("+", "-") or self._is_word("NOT")):
            return self._primary()
        operator = self._advance()
        self._enter(operator)
        start = self._next
        operand = self._unary()
        self._nesting -= 1
        if operator.text == "+":
            return operand
        if operator.text == "-":
            return Negative(operand)
        return Not(_as_condition(operand, start))

    def _primary(self) -> Value:
        token = self._advance()
        if token.kind is TokenKind.SIGN and token.text == "(":
            self._enter(token)
            inner = self._or()
            self._expect_sign(")")
            self._nesting -= 1
            return inner
        self._operands += 1
        if self._operands > OPERANDS_MAX:
            raise SqlSyntaxError(f"more than {OPERANDS_MAX} operands", token.position)
        match token.kind:
            case TokenKind.NAME:
                self.names.add(token.text)
                return Property(token.text)
            case TokenKind.STRING:
                return Text(_unquoted(token.text))
            case TokenKind.DECIMAL:
                return _decimal(token)
            case TokenKind.FLOAT:
                return _float(token)
            case TokenKind.WORD if token.text in _LITERALS:
                return Literal(_LITERALS[token.text])
        raise _unexpected(token, "a property, a literal or '('")

    def _string(self) -> str:
        token = self._advance()
        if token.kind is not TokenKind.STRING:
            raise _unexpected(token, "a string")
        return _unquoted(token.text)

    # --- tokens and limits -----------------------------------------------------------------

    def _advance(self) -> Token:
        token = self._next
        if token.kind is not TokenKind.END:
            self._next = next(self._tokens)
        return token

    def _is_sign(self, *signs: str) -> bool:
        return self._next.kind is TokenKind.SIGN and self._next.text in signs

    def _is_word(self, *words: str) -> bool:
        return self._next.kind is TokenKind.WORD and self._next.text in words

    def _expect_sign(self, sign: str) -> None:
        if not self._is_sign(sign):
            raise _unexpected(self._next, repr(sign))
        self._advance()

    def _expect_word(self, word: str) -> None:
        if not self._is_word(word):
            raise _unexpected(self._next, word)
        self._advance()

    def _enter(self, token: Token) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise SqlSyntaxError(f"nested more than {NESTING_MAX} deep", token.position)

    def _count_chained(self, is_first: bool, operator: Token) -> None:
        # `a = b = c` compares the outcome of a comparison: one call inside of another per operator,
        # as with parentheses. Counted over the whole text, so that no mixture of both gets deep.
        if is_first:
            return
        self._chained += 1
        if self._chained > NESTING_MAX:
            raise SqlSyntaxError(
                f"more than {NESTING_MAX} comparisons of comparisons", operator.position
            )


def _as_condition(value: Value, start: Token) -> Condition:
    if isinstance(value, CONDITIONS):
        return value
    if isinstance(value, Property):
        return Truth(value)
    raise SqlSyntaxError("a condition is needed here", start.position)


def _equal(left: Value, right: Value, operator: Token) -> Equal:
    if _is_null_literal(left) or _is_null_literal(right):
        raise SqlSyntaxError("NULL cannot be compared, there is IS NULL", operator.position)
    if isinstance(left, Literal) and isinstance(right, Text | Number):
        raise SqlSyntaxError(
            "TRUE and FALSE cannot be compared with strings and numbers", operator.position
        )
    return Equal(left, right)


def _is_null_literal(value: Value) -> bool:
    return isinstance(value, Literal) and value.value is None


def _ordered(ordering: Ordering, left: Value, right: Value, operator: Token) -> Ordered:
    for side in (left, right):
        if isinstance(side, (*CONDITIONS, *CONSTANTS)) and not isinstance(side, Number):
            raise SqlSyntaxError(
                "only numbers and properties are compared by size", operator.position
            )
    return Ordered(ordering, left, right)


def _decimal(token: Token) -> Number:
    digits = token.text.rstrip("lL")
    if len(digits) > _DECIMAL_DIGITS_MAX or int(digits) > I64_MAX:
        raise SqlSyntaxError(f"{token.shown()} does not fit into 64 bits", token.position)
    value = int(digits)
    return Number(value, NumberType.INTEGER if value <= I32_MAX else NumberType.LONG)


def _float(token: Token) -> Number:
    value = float(token.text)
    if value == float("inf"):
        raise SqlSyntaxError(f"{token.shown()} is too great for a double", token.position)
    if value == 0:
        # Also when it is written as zero: stock brokers do not take it, and 0 says the same.
        raise SqlSyntaxError(
            f"{token.shown()} is less than the least positive double", token.position
        )
    return Number(value, NumberType.DOUBLE)


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _unexpected(token: Token, wanted: str) -> SqlSyntaxError:
    return SqlSyntaxError(f"expected {wanted}, found {token.shown()}", token.position)
