"""Which labels the result of a PromQL expression has, and what it asks for.

An expression that is valid may nevertheless never have a value: it asks for a label that a metric
has not, or matches two sides whose labels differ. `labels_of` finds both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorMatchCardinality,
    VectorSelector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promql_parser import Expr

Labels = frozenset[str]
KEEP: Final = frozenset({"topk", "bottomk"})
"""Aggregations whose results are series of what they aggregate."""


class Matcher(NamedTuple):
    """What a selector asks of a label."""

    metric: str
    label: str
    value: str
    is_pattern: bool


def selectors(expression: Expr) -> Iterator[VectorSelector]:
    """Yield all selectors of an expression."""
    match expression:
        case VectorSelector():
            yield expression
        case MatrixSelector():
            yield expression.vector_selector
        case BinaryExpr():
            yield from selectors(expression.lhs)
            yield from selectors(expression.rhs)
        case Call():
            for argument in expression.args:
                yield from selectors(argument)
        case AggregateExpr() | ParenExpr() | SubqueryExpr() | UnaryExpr():
            yield from selectors(expression.expr)
        case NumberLiteral() | StringLiteral():
            pass
        case _:
            raise AssertionError(type(expression))


def metrics_of(selector: VectorSelector, known: Mapping[str, Labels]) -> list[str]:
    """Return the metrics that a selector finds; several, if it asks by a pattern."""
    if selector.name is not None:
        return [selector.name]
    (pattern,) = [m.value for m in selector.matchers.matchers if m.name == "__name__"]
    return [name for name in known if re.fullmatch(pattern, name)]


def matchers_of(selector: VectorSelector, known: Mapping[str, Labels]) -> Iterator[Matcher]:
    """Yield what a selector asks of labels, for each metric that it finds."""
    for metric in metrics_of(selector, known):
        for each in selector.matchers.matchers:
            if each.name != "__name__":
                is_pattern = each.op in (MatchOp.Re, MatchOp.NotRe)
                yield Matcher(metric, each.name, each.value, is_pattern)


def labels_of(expression: Expr, known: Mapping[str, Labels]) -> Labels | None:
    """Return the labels of a result, None if it is a number; `known` has those of each metric.

    Raise `AssertionError` for an expression that cannot have the value it was written for.
    """
    match expression:
        case VectorSelector():
            return _of_selector(expression, known)
        case MatrixSelector():
            return _of_selector(expression.vector_selector, known)
        case ParenExpr() | SubqueryExpr() | UnaryExpr():
            return labels_of(expression.expr, known)
        case Call():
            return _of_call(expression, known)
        case AggregateExpr():
            return _of_aggregation(expression, known)
        case BinaryExpr():
            return _of_binary(expression, known)
        case _:
            return None


def _of_selector(selector: VectorSelector, known: Mapping[str, Labels]) -> Labels:
    metrics = metrics_of(selector, known)
    assert metrics, f"no metric is found by {selector}"
    for metric in metrics:
        assert metric in known, f"no process shows {metric}"
    for each in matchers_of(selector, known):
        assert each.label in known[each.metric], f"{each.metric} has no label {each.label}"
    return frozenset.intersection(*(known[metric] for metric in metrics))


def _of_call(call: Call, known: Mapping[str, Labels]) -> Labels | None:
    name = call.func.name
    found = [labels_of(argument, known) for argument in call.args]
    vectors = [labels for labels in found if labels is not None]
    if name == "histogram_quantile":
        (labels,) = vectors
        assert "le" in labels, "a quantile needs the label le"
        return labels - {"le"}
    if name == "vector":
        return frozenset()
    if name == "absent":
        # The result has what the selector asks of its labels.
        (selector,) = selectors(call)
        return frozenset(each.label for each in matchers_of(selector, known))
    assert name != "label_replace", "labels that are made up are not checked"
    return vectors[0] if vectors else None


def _of_aggregation(aggregation: AggregateExpr, known: Mapping[str, Labels]) -> Labels:
    inner = labels_of(aggregation.expr, known)
    assert inner is not None, "only series can be aggregated"
    if str(aggregation.op) in KEEP:
        return inner
    if aggregation.modifier is None:
        return frozenset()
    named = frozenset(aggregation.modifier.labels)
    assert named <= inner, f"no label {', '.join(sorted(named - inner))} to group by"
    return named if aggregation.modifier.type == AggModifierType.By else inner - named


def _of_binary(operation: BinaryExpr, known: Mapping[str, Labels]) -> Labels | None:
    left, right = labels_of(operation.lhs, known), labels_of(operation.rhs, known)
    if left is None or right is None:
        return right if left is None else left
    operator, modifier = str(operation.op), operation.modifier
    if operator == "or":
        return left & right
    matching = modifier.matching if modifier is not None else None
    if modifier is None or matching is None:
        assert left == right, f"{operator} finds no pairs: {sorted(left ^ right)} is on one side"
        return left
    named = frozenset(matching.labels)
    assert matching.type == LabelModifierType.Include, "ignoring is not used"
    assert named <= left & right, f"{operator} matches on labels that are not on both sides"
    if operator in ("and", "unless"):
        return left
    if modifier.card == VectorMatchCardinality.ManyToOne:
        # Labels that group_left brings are not counted: no query uses them so far.
        return left
    if modifier.card == VectorMatchCardinality.OneToMany:
        return right
    assert modifier.card == VectorMatchCardinality.OneToOne, "many to many"
    return named
