"""Reads the text of a module of TTIR, as Triton 3.5 to 3.9 print it, with or without locations.

The bindings of Triton have no list of attributes and no list of the blocks of a region; the text has everything, one
operation a line. Operations print in syntaxes of their own, and most of these have one pattern: ``name operands and
attributes : types``, where the types end with those of the results.
"""

from __future__ import annotations

import re

from torch_backplane.triton.ttir import Block, Function, Module, Op, Type, Value

_VALUE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_RESULTS = re.compile(r"((?:%[\w$.\-]+(?::\d+)?(?:, )?)+) = ")
_LOCATION = re.compile(r" loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)")
_ATTRIBUTE = re.compile(r'([\w.]+) = (array<i\d+: ([^>]*)>|"(?:\\.|[^"\\])*"|[^,{}<>]+)')
_OPEN, _CLOSE = "([{<", ")]}>"


class TextError(ValueError):
    """Text that is no TTIR, or of a release whose syntax is unknown here."""


def parts_of(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that stand outside brackets and strings."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        if text[i] == '"':
            quoted = _QUOTED.match(text, i)
            i = quoted.end() if quoted else len(text)
            continue
        if depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            i = start = i + len(separator)
            continue
        if text.startswith("->", i):
            i += 2
            continue
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        i += 1
    parts.append(text[start:])
    return parts


def read_type(text: str) -> Type:
    """Of ``f32``, ``!tt.ptr<f32>``, ``tensor<4x8x!tt.ptr<f32>>``."""
    text = text.strip()
    if text.startswith("tensor<"):
        inner = parts_of(text[len("tensor<") : -1], ",")[0].strip()
        lengths = re.match(r"(?:\d+x)*", inner)
        assert lengths is not None
        elem = read_type(inner[lengths.end() :])
        return elem.blocked(tuple(int(length) for length in lengths.group().split("x")[:-1]))
    if text.startswith("!tt.ptr<"):
        return Type("ptr", None, read_type(parts_of(text[len("!tt.ptr<") : -1], ",")[0]))
    return Type("i64" if text == "index" else text)


def read_types(text: str) -> list[Type]:
    """Of a list with or without parentheses."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [read_type(part) for part in parts_of(text, ",") if part.strip()]


def read(text: str) -> Module:
    """The module of a text.

    Raises:
        TextError: a line cannot be read; it names the line.
    """
    reader = _Reader(text)
    try:
        return reader.module()
    except (AssertionError, AttributeError, IndexError, KeyError, ValueError) as error:
        number, line = reader.numbered[min(reader.at, len(reader.lines)) - 1] if reader.lines else (0, "")
        raise TextError(f"line {number} of the TTIR cannot be read: {line}") from error


class _Reader:
    def __init__(self, text: str) -> None:
        every = [line.strip() for line in text.splitlines()]
        self.locations = _locations([line for line in every if line.startswith("#loc")])
        self.numbered = [(i, line) for i, line in enumerate(every, 1) if line and not line.startswith("#")]
        self.lines = [line for _, line in self.numbered]
        self.at = 0  # the next line
        self.location = ""  # of the line before
        self.scopes: list[dict[str, Value]] = [{}]

    def next(self) -> str:
        """The next line, without its locations; that of its operation is kept."""
        line = self.lines[self.at]
        self.at += 1
        named = re.search(r" loc\((#loc\d*)\)$", line)
        self.location = self.locations.get(named.group(1), "") if named else ""
        return _LOCATION.sub("", line)

    def define(self, name: str, value: Value) -> None:
        hint = re.match(r"%([a-zA-Z]\w*?)(?:_\d+)?$", name)
        value.hint = hint.group(1) if hint and not re.match(r"(arg\d|c\w*_i\d|cst)", hint.group(1)) else ""
        self.scopes[-1][name] = value

    def value(self, name: str) -> Value:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise KeyError(name)

    def use(self, op: Op, text: str) -> None:
        for name in _VALUE.findall(_QUOTED.sub('""', text)):
            value = self.value(name)
            op.operands.append(value)
            value.users.append(op)

    def arguments(self, block: Block, text: str) -> None:
        for one in parts_of(text, ","):
            if one.strip():
                name, kind = one.strip().split(":", 1)
                value = Value(read_type(re.sub(r"\{.*\}$", "", kind.strip())), block=block)
                block.arguments.append(value)
                self.define(name.strip(), value)

    def results(self, op: Op, names: list[str], types: list[Type]) -> None:
        for name in names:
            base, _, count = name.partition(":")
            for i in range(int(count or 1)):
                value = Value(types[min(len(op.results), len(types) - 1)], op=op)
                op.results.append(value)
                self.define(f"{base}#{i}" if count else base, value)

    # ---- functions and regions ----

    def module(self) -> Module:
        functions = {}
        while self.at < len(self.lines):
            line = self.next()
            if line.startswith("tt.func"):
                function = self.function(line)
                functions[function.name] = function
        return Module(functions)

    def function(self, line: str) -> Function:
        head = re.match(r'tt\.func (public |private )?@("[^"]*"|[^(]+)\(', line)
        assert head is not None
        inside = parts_of(line[head.end() :], ")")[0]
        tail = line[head.end() + len(inside) + 1 :].strip()
        results = read_types(re.split(r" attributes |\{$", tail[2:])[0]) if tail.startswith("->") else []
        self.scopes = [{}]
        first = Block()
        self.arguments(first, inside)
        blocks, _ = self.region(None, first)
        return Function(head.group(2).strip('"'), head.group(1) != "private ", results, blocks)

    def region(self, parent: Op | None, first: Block) -> tuple[list[Block], str]:
        """Its blocks, up to the line with the closing brace, which is returned."""
        blocks, block = [first], first
        first.parent = parent
        while True:
            line = self.next()
            if line.startswith("}"):
                return blocks, line
            if not line.startswith("^"):
                block.append(self.operation(line))
                continue
            head = re.match(r"\^(\w+)(?:\((.*)\))?:", line.split("//")[0].strip())
            assert head is not None
            if parent is None or block.ops or block.label:
                block = Block(parent=parent)
                blocks.append(block)
            block.label = head.group(1)
            self.arguments(block, head.group(2) or "")

    def nested(self, op: Op, arguments: str = "") -> str:
        """A region of the operation: the line that ends it."""
        self.scopes.append({})
        block = Block()
        self.arguments(block, arguments)
        place, location = len(op.regions), op.location
        op.regions.append([])
        op.regions[place], line = self.region(op, block)
        if op.dialect == "scf" and (not block.ops or block.ops[-1].name not in ("scf.yield", "scf.condition")):
            block.append(Op("scf.yield"))  # one of nothing is not printed
        op.location = self.location or location
        self.scopes.pop()
        return line

    # ---- operations ----

    def operation(self, line: str) -> Op:
        names: list[str] = []
        if found := _RESULTS.match(line):
            names, line = found.group(1).split(", "), line[found.end() :]
        head = re.match(r'"?([\w.]+)"?', line)
        assert head is not None
        op, rest = Op(head.group(1), location=self.location), line[head.end() :]
        special = getattr(self, "read_" + op.name.replace(".", "_"), None)
        if special is not None:
            special(op, names, rest)
        elif rest.endswith("({"):  # an operation with a region, in the generic syntax
            op.attributes = _attributes(rest)
            self.use(op, rest)
            end = self.nested(op)
            self.results(op, names, read_types(parts_of(end.lstrip("})"), "->")[-1]))
        else:
            *bodies, types = parts_of(rest, " : ")
            op.body = " : ".join(bodies) if bodies else types
            op.attributes = _attributes(op.body)
            self.use(op, op.body)
            if names:
                self.results(op, names, _result_types(op, types if bodies else ""))
        return op

    def read_arith_constant(self, op: Op, names: list[str], rest: str) -> None:
        op.body, *types = (part.strip() for part in parts_of(rest, " : "))
        self.results(op, names, [read_type(types[0]) if types else Type("i1")])

    def read_scf_for(self, op: Op, names: list[str], rest: str) -> None:
        head = re.match(r"\s*(unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)\s*(.*)\{$", rest)
        assert head is not None
        unsigned, variable, low, high, step, tail = head.groups()
        op.attributes["unsigned"] = "true" if unsigned else "false"
        kind = re.search(r":\s*(i\d+)\s*$", tail)
        carried, types = _carried(tail[: kind.start()] if kind else tail)
        self.use(op, " ".join([low, high, step, *(first for _, first in carried)]))
        arguments = [f"{variable}: {kind.group(1) if kind else 'index'}"]
        self.nested(
            op, ", ".join(arguments + [f"{name}: {type}" for (name, _), type in zip(carried, types, strict=True)])
        )
        self.results(op, names, [read_type(type) for type in types])

    def read_scf_if(self, op: Op, names: list[str], rest: str) -> None:
        head = re.match(r"\s*(%\S+)\s*(?:->\s*(.*))?\{$", rest)
        assert head is not None
        self.use(op, head.group(1))
        if "else" in self.nested(op):
            self.nested(op)
        self.results(op, names, read_types(head.group(2) or ""))

    def read_scf_while(self, op: Op, names: list[str], rest: str) -> None:
        head = re.match(r"\s*(?:\((.*?)\))?\s*:\s*(.*)\{$", rest)
        assert head is not None
        carried = [tuple(pair.split(" = ")) for pair in parts_of(head.group(1) or "", ",") if pair.strip()]
        before, after = parts_of(head.group(2), "->")
        self.use(op, " ".join(first for _, first in carried))
        types = parts_of(before.strip()[1:-1], ",")
        self.nested(op, ", ".join(f"{name.strip()}: {type}" for (name, _), type in zip(carried, types, strict=False)))
        self.nested(op)
        self.results(op, names, read_types(after))

    def read_cf_br(self, op: Op, names: list[str], rest: str) -> None:
        op.targets = [self.successor(op, rest)]

    def read_cf_cond_br(self, op: Op, names: list[str], rest: str) -> None:
        condition, first, second = parts_of(rest, ",")
        self.use(op, condition)
        op.targets = [self.successor(op, first), self.successor(op, second)]

    def successor(self, op: Op, text: str) -> tuple[str, list[Value]]:
        head = re.match(r"\s*\^(\w+)(?:\((.*)\))?", text)
        assert head is not None
        values = [self.value(name) for name in _VALUE.findall(parts_of(head.group(2) or "", " : ")[0])]
        for value in values:
            value.users.append(op)
        return head.group(1), values


def _carried(tail: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and first values of ``iter_args(%a = %b, ...) -> (types)``, and the types."""
    if not tail.strip().startswith("iter_args("):
        return [], []
    head, _, arrow = tail.strip()[len("iter_args(") :].partition(") ->")
    pairs = [pair.split(" = ") for pair in parts_of(head, ",")]
    types = arrow.strip()
    return [(name.strip(), first) for name, first in pairs], parts_of(types[1:-1] if types[0] == "(" else types, ",")


def _attributes(text: str) -> dict[str, str]:
    """``name = value`` pairs: a string without quotes, an array's elements, a number without its type."""
    found = {}
    for name, value, elements in _ATTRIBUTE.findall(text):
        if value[0] == '"':
            found[name] = value[1:-1]
        else:
            found[name] = elements if value.startswith("array<") else value.split(" : ")[0].strip()
    return found


def _result_types(op: Op, text: str) -> list[Type]:
    for separator in ("->", " to "):
        parts = parts_of(text, separator)
        if len(parts) > 1:
            return read_types(parts[-1])
    types = read_types(text) if text else [Type("i1")]
    if op.name in ("arith.cmpi", "arith.cmpf"):
        return [Type("i1", types[0].shape)]
    if op.name == "tt.load":
        pointee = types[0].pointee
        assert pointee is not None
        return [pointee.blocked(types[0].shape)]
    return [types[-1] if op.name == "arith.select" else types[0]]


def _locations(lines: list[str]) -> dict[str, str]:
    """``file:line`` of each name of a location: that of the innermost call of a chain of names and calls."""
    named = (re.match(r"(#loc\d*) = loc\((.*)\)$", line) for line in lines)
    texts = {match.group(1): match.group(2) for match in named if match is not None}
    found: dict[str, str] = {}

    def resolve(name: str, seen: int = 0) -> str:
        if name not in found:
            text = texts.get(name, "")
            at = re.match(r'"(.*)":(\d+):\d+', text)
            inner = re.search(r"#loc\d*", text)
            if at:
                found[name] = f"{at.group(1)}:{at.group(2)}"
            else:
                found[name] = resolve(inner.group(), seen + 1) if inner and seen < 50 else ""
        return found[name]

    for name in texts:
        resolve(name)
    return found
