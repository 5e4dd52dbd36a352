"""The prose of the project: docstrings, comments, messages of errors and logs, Markdown text."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house._source import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DIRECTIVE = re.compile(r"(?:# *)?(?:noqa|type: ignore|pyright: ignore|pragma|fmt:).*|^!.*|^-{2,}.*")
SENTENCE_END = re.compile(r'(?<=[.!?])\s+(?=[A-Z`:"(\[*])')
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
PARAGRAPH_END = re.compile(r"\n[ \t]*\n|\n\s*(?:[-*]|\d+\.) ")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Text:
    """One piece of prose and its place."""

    kind: str
    """docstring, comment, error, log or markdown."""
    text: str
    path: Path
    line: int
    function: str = ""
    """Name of the function that a docstring belongs to. Empty for a class, module or attribute."""
    is_noun: bool = False
    """True if the function is read as a value: a property, a fixture, an overload."""

    @property
    def where(self) -> str:
        """Path from the root of the project, and line."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text. Indented blocks and doctests are code and left out."""
    for paragraph in PARAGRAPH_END.split(text):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") or not line.strip() for line in lines):
            continue
        if lines[0].lstrip().startswith((">>>", "::")):
            continue
        yield from SENTENCE_END.split(" ".join(paragraph.split()))


def words(text: str) -> list[str]:
    """Return the words of a sentence. Code in backticks counts as one word."""
    text = re.sub(r"``[^`]*``|`[^`]*`", " x ", text)
    text = re.sub(r":\w+:", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    found = re.findall(r"[A-Za-z0-9_'\-./]+", text)
    return [word for word in found if re.search("[A-Za-z0-9]", word)]


def python_texts(source: str, path: Path) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a Python file."""
    tree = ast.parse(source)
    yield from _docstrings(tree, path)
    yield from _messages(tree, path)
    yield from _comments(source, path)


def _docstrings(tree: ast.Module, path: Path) -> Iterator[Text]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not isinstance(node, (*Documented, ast.If)):
            continue
        for index, statement in enumerate(body):
            text = _constant(statement.value) if isinstance(statement, ast.Expr) else None
            if text is None:
                continue
            is_function = index == 0 and isinstance(node, Function)
            yield Text(
                "docstring",
                inspect.cleandoc(text).strip(),
                path,
                statement.lineno,
                node.name if is_function and isinstance(node, Function) else "",
                isinstance(node, Function) and _is_noun(node),
            )


def _is_noun(function: Function) -> bool:
    marks = " ".join(ast.unparse(each) for each in function.decorator_list)
    dunder = function.name.startswith("__") and function.name.endswith("__")
    return dunder or any(word in marks for word in ("property", "fixture", "overload", "probe"))


def _messages(tree: ast.Module, path: Path) -> Iterator[Text]:
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                text = _constant(part)
                if text is None or id(part) in seen or len(words(text)) < 3:
                    continue
                seen.update(map(id, ast.walk(part)))
                yield Text("error", text, path, node.lineno)
        elif isinstance(node, ast.Call) and _is_log(node):
            text = _constant(node.args[0])
            if text is not None:
                yield Text("log", text, path, node.lineno)


def _is_log(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and "log" in ast.unparse(function.value).lower()
        and bool(call.args)
    )


def _constant(node: ast.AST) -> str | None:
    """Return the text of a string or f-string, with ``x`` for each value. None if it is neither."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "x" for each in node.values)
        return "".join(map(str, parts))
    return None


def _comments(source: str, path: Path) -> Iterator[Text]:
    """Yield comments. Comment lines that follow each other are one text."""
    block: list[str] = []
    first = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = DIRECTIVE.sub("", token.string.removeprefix("#").strip()).strip()
        line = token.start[0]
        if block and line != last + 1:
            yield Text("comment", " ".join(block), path, first)
            block = []
        if text:
            first = first if block else line
            block.append(text)
            last = line
    if block:
        yield Text("comment", " ".join(block), path, first)


def markdown_texts(source: str, path: Path) -> Iterator[Text]:
    """Yield the paragraphs of a Markdown page, without headings, tables and blocks of code."""
    block: list[str] = []
    is_code = False
    first = 1
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            line = ""  # noqa: PLW2901
        if is_code or not line.strip() or line.startswith(("#", "|")):
            if block:
                yield Text("markdown", "\n".join(block), path, first)
            block = []
            continue
        if block and LIST_ITEM.match(line):
            yield Text("markdown", "\n".join(block), path, first)
            block = []
        first = first if block else number
        block.append(LIST_ITEM.sub("", line))
