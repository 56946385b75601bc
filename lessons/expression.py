"""The small expression language of the lessons: predicates, answers, claims and the numbers inside the prose.

A subset of Python's expressions, parsed with :mod:`ast` and walked node by node; nothing is ever passed to ``eval``. Its
twin for the browser is ``viz/static/lessons/expression.js``; ``tests/lessons/expression_cases.json`` holds both to the same
answers. What there is:

    numbers, 'texts', True, False, None · names · record.field · list[0] · a if b else c
    or and not · == != < <= > >= (chained) · + - * / // % · min max sum abs round floor ceil sqrt log2 len column(list, 'field')

It is strict where Python is lenient, so that two implementations can agree: ``and``, ``or``, ``not`` and ``if`` take only True and
False, arithmetic and order only numbers, and dividing by zero is an error.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

MAX_LENGTH = 400
MAX_NODES = 200

_NUMBER = re.compile(r"(\d[\d_]*)(\.\d+)?([eE][+-]?\d+)?\Z")
_TEXT = re.compile(r"'[^'\\\n]*'\Z|\"[^\"\\\n]*\"\Z")
_WORDS = {"True": True, "False": False, "None": None}


class ExpressionError(ValueError):
    """The expression is malformed or cannot be computed here; the message says what, in one sentence."""


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExpressionError(f"{what} needs a number, not {describe(value)}.")
    return value


def _boolean(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{what} needs True or False, not {describe(value)}.")
    return value


def describe(value: Any) -> str:
    """A value's kind in a word, for messages."""
    if value is None:
        return "None (nothing was measured)"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, (list, tuple)) else "a record"


def _finite(value: float, what: str) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ExpressionError(f"{what} gave no finite number.")
    return value


def _divide(left: float, right: float, operator: str) -> float:
    if right == 0:
        raise ExpressionError("There is a division by zero.")
    if operator == "/":
        return left / right
    quotient = math.floor(left / right)
    return quotient if operator == "//" else left - quotient * right


def _numbers(name: str, arguments: list[Any]) -> list[float]:
    values = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], (list, tuple)) else arguments
    if not values:
        raise ExpressionError(f"{name} needs at least one number.")
    return [_number(value, name) for value in values]


def _column(arguments: list[Any]) -> list[Any]:
    rows, field = arguments
    if not isinstance(rows, (list, tuple)) or not isinstance(field, str):
        raise ExpressionError("column needs a list of records and the name of a field.")
    found = [row[field] for row in rows if isinstance(row, Mapping) and row.get(field) is not None]
    if not found and rows and not any(isinstance(row, Mapping) and field in row for row in rows):
        raise ExpressionError(f"No record of that list has a field '{field}'.")
    return found


def round_half_up(value: float, digits: int = 0) -> float:
    """Round as people do, halves up: the same in both languages, where the built-in ones differ."""
    scale = 10.0 ** digits
    return math.floor(value * scale + 0.5) / scale


def _length(arguments: list[Any]) -> int:
    if not isinstance(arguments[0], (list, tuple, str)):
        raise ExpressionError(f"len needs a list or a text, not {describe(arguments[0])}.")
    return len(arguments[0])


def _root(value: float) -> float:
    if value < 0:
        raise ExpressionError("sqrt needs a number that is not negative.")
    return math.sqrt(value)


def _log2(value: float) -> float:
    if value <= 0:
        raise ExpressionError("log2 needs a number above zero.")
    return math.log2(value)


#: name → (fewest arguments, most arguments, function of the list of arguments)
FUNCTIONS = {
    "min": (1, 20, lambda a: min(_numbers("min", a))),
    "max": (1, 20, lambda a: max(_numbers("max", a))),
    "sum": (1, 20, lambda a: sum(_numbers("sum", a))),
    "abs": (1, 1, lambda a: abs(_number(a[0], "abs"))),
    "round": (1, 2, lambda a: round_half_up(_number(a[0], "round"), int(_number(a[1], "round")) if len(a) > 1 else 0)),
    "floor": (1, 1, lambda a: math.floor(_number(a[0], "floor"))),
    "ceil": (1, 1, lambda a: math.ceil(_number(a[0], "ceil"))),
    "sqrt": (1, 1, lambda a: _root(_number(a[0], "sqrt"))),
    "log2": (1, 1, lambda a: _log2(_number(a[0], "log2"))),
    "len": (1, 1, _length),
    "column": (2, 2, _column),
}

_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}


class Expression:
    """A parsed expression: ``text`` as written, ``names`` it reads (``'run.metric'`` or ``'metric'``, outermost first).

    Raises :class:`ExpressionError` on construction for anything outside the language.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError("The expression is empty.")
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"The expression is longer than {MAX_LENGTH} characters.")
        if not text.isascii() or any(sign in text for sign in "#\\\n"):
            raise ExpressionError("An expression holds plain ASCII signs on one line, without # and \\.")
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise ExpressionError(f"'{self.text}' is not a complete expression.") from error
        self.names: set[str] = set()
        self._nodes = 0
        self._check(self._tree)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value over ``names``. Raises :class:`ExpressionError` for an unknown name or operands that don't fit."""
        return self._value(self._tree, names)

    def _check(self, node: ast.AST) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ExpressionError("The expression has too many parts.")
        if isinstance(node, ast.Constant):
            source = ast.get_source_segment(self.text, node) or ""
            good = source in _WORDS or (_TEXT if isinstance(node.value, str) else _NUMBER).match(source)
            if not good:
                raise ExpressionError(f"'{source[:40]}' is not a number or text of this language.")
            return
        if isinstance(node, ast.Name):
            self.names.add(node.id)
            return
        if isinstance(node, ast.Attribute):
            path = _dotted(node)
            if path:
                self.names.add(path)
            if node.attr.startswith("_"):
                raise ExpressionError("A field's name may not begin with an underscore.")
            self._check(node.value)
            return
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
                raise ExpressionError(f"There is no such function; the functions are {', '.join(FUNCTIONS)}.")
            fewest, most, _ = FUNCTIONS[node.func.id]
            if node.keywords or not fewest <= len(node.args) <= most:
                raise ExpressionError(f"{node.func.id} takes {fewest if fewest == most else f'{fewest} to {most}'} arguments.")
            children: list[ast.AST] = list(node.args)
        elif isinstance(node, ast.BoolOp):
            children = list(node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            children = [node.operand]
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            children = [node.left, node.right]
        elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            children = [node.left, *node.comparators]
        elif isinstance(node, ast.IfExp):
            children = [node.test, node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            children = [node.value, node.slice]
        else:
            raise ExpressionError(f"'{self.text[:60]}' uses something outside the lesson language ({type(node).__name__}).")
        for child in children:
            self._check(child)

    def _value(self, node: ast.AST, names: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in names:
                raise ExpressionError(f"There is no name '{node.id}' here.")
            return names[node.id]
        if isinstance(node, ast.Attribute):
            record = self._value(node.value, names)
            if not isinstance(record, Mapping) or node.attr not in record:
                raise ExpressionError(f"There is no field '{node.attr}' here.")
            return record[node.attr]
        if isinstance(node, ast.Subscript):
            return _item(self._value(node.value, names), self._value(node.slice, names))
        if isinstance(node, ast.Call):
            return _finite(FUNCTIONS[node.func.id][2]([self._value(argument, names) for argument in node.args]), node.func.id)
        if isinstance(node, ast.BoolOp):
            stop = isinstance(node.op, ast.Or)
            word = "or" if stop else "and"
            for child in node.values:
                if _boolean(self._value(child, names), word) is stop:
                    return stop
            return not stop
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, names)
            return not _boolean(value, "not") if isinstance(node.op, ast.Not) else -_number(value, "-")
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, names)
        if isinstance(node, ast.IfExp):
            return self._value(node.body if _boolean(self._value(node.test, names), "if") else node.orelse, names)
        return self._compare(node, names)

    def _arithmetic(self, node: ast.BinOp, names: Mapping[str, Any]) -> float:
        operator = _ARITHMETIC[type(node.op)]
        left = _number(self._value(node.left, names), operator)
        right = _number(self._value(node.right, names), operator)
        if operator in "+-*":
            value = left + right if operator == "+" else left - right if operator == "-" else left * right
        else:
            value = _divide(left, right, operator)
        return _finite(value, operator)

    def _compare(self, node: ast.Compare, names: Mapping[str, Any]) -> bool:
        left = self._value(node.left, names)
        for op, comparator in zip(node.ops, node.comparators):
            operator, right = _COMPARE[type(op)], self._value(comparator, names)
            if not compare(left, operator, right):
                return False
            left = right
        return True


def compare(left: Any, operator: str, right: Any) -> bool:
    """``left operator right`` by the rules of the language: order only between numbers, equality only within a kind."""
    if operator in ("==", "!="):
        same = isinstance(left, bool) == isinstance(right, bool) and left == right
        return same if operator == "==" else not same
    a, b = _number(left, operator), _number(right, operator)
    return a < b if operator == "<" else a <= b if operator == "<=" else a > b if operator == ">" else a >= b


def _item(values: Any, index: Any) -> Any:
    if isinstance(values, Mapping):
        if not isinstance(index, str) or index not in values:
            raise ExpressionError(f"There is no field '{index}' here.")
        return values[index]
    if not isinstance(values, (list, tuple)):
        raise ExpressionError(f"[ ] needs a list or a record, not {describe(values)}.")
    position = _number(index, "[ ]")
    if position != int(position) or not 0 <= position < len(values):
        raise ExpressionError(f"The list has {len(values)} entries, there is no entry {index}.")
    return values[int(position)]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""
