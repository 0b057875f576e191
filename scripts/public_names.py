# SPDX-License-Identifier: Apache-2.0
"""The declarations of a header with their comments and bodies, for describe_surface and check_docstrings."""
import dataclasses
import re

# Declares the tag of a nonlinear operation.
TAG = "SHARDWRIGHT_NONLINEAR_OPERATION"
TOKEN = re.compile(r'R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|///[^\n]*|//[^\n]*|/\*(?:.|\n)*?\*/'
                   r"|::|->|\w+|\n|\s+|.")
OPENING = {"{": "}", "(": ")", "[": "]"}


@dataclasses.dataclass
class Declaration:
    name: str  # without shardwright::
    words: list  # up to the body or the semicolon
    comment: str  # its own, or that of the declaration right above it
    body: list  # tokens; None without one, and of a class
    member: bool
    public: bool  # neither in a namespace detail nor in a private part of a class

    @property
    def is_function(self):
        short = self.name.split("::")[-1]
        return short.startswith("operator") or any(
            each == short and after == "(" for each, after in zip(self.words, self.words[1:]))


def without_directives(text):
    """The text with preprocessor lines and their continuations blanked."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)


def matching(tokens, start):
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(tokens)):
        if tokens[place] in OPENING:
            depth += 1
        elif tokens[place] in OPENING.values():
            depth -= 1
            if depth == 0:
                return place
    return len(tokens) - 1


def angle_end(words, start):
    """One past the bracket that closes the template's `<` at `start`."""
    depth = 0
    place = start
    while place < len(words):
        if words[place] in OPENING:
            place = matching(words, place)
        elif words[place] == "<":
            depth += 1
        elif words[place] == ">":
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    return place


def name_of(words, has_body):
    """The name that a declaration introduces; None if there is none."""
    while words and words[0] == "template":
        words = words[angle_end(words, 1) :]
    if not words or words[0] in ("static_assert", "namespace", "extern", "friend"):
        return None
    if words[0] == TAG:
        return words[2]
    if words[0] == "concept":
        return words[1]
    if words[0] == "using":
        return words[1] if len(words) > 2 and words[2] == "=" else None
    if words[0] in ("class", "struct", "union", "enum") and "(" not in words:
        rest = [word for word in words[1:] if word not in ("class", "struct")]
        while rest and rest[0] == "[":
            rest = rest[matching(rest, 0) + 1 :]
        if not has_body or not rest or len(rest) > 1 and rest[1] == "<":
            return None  # a forward declaration or a specialisation
        return rest[0]
    # A function or variable: the name before the first bracket or the initialiser.
    place = 0
    while place < len(words):
        word = words[place]
        if word == "operator" and place > 0 and words[place - 1] == "::":
            return None  # a member that is defined outside its class
        if word == "operator":
            end = words.index("(", place + 2 if words[place + 1] == "(" else place + 1)
            return "operator" + "".join(words[place + 1 : end])
        if word == "[":
            place = matching(words, place) + 1
            continue
        if word == "<":
            place = angle_end(words, place)
            continue
        if word in ("requires", "decltype", "noexcept", "alignas", "__attribute__", "explicit") and place + 1 < len(words) \
                and words[place + 1] == "(":
            place = matching(words, place + 1) + 1
            continue
        if word in ("(", "=", "{"):
            before = words[place - 1] if place else ""
            if place > 1 and words[place - 2] in ("::", "~") and word == "(":
                return None  # the same, perhaps a destructor
            if word == "(" and "->" in words[matching(words, place) :] and place == 1:
                return None  # a deduction guide
            return before if re.fullmatch(r"[A-Za-z_]\w*", before) else None
        place += 1
    return words[-1] if len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[-1]) else None


def outside_name(words):
    """`Class::member` of a function that is defined outside its class; None otherwise."""
    joined = " ".join(words)
    found = re.search(r"(\w+)(?: <[^()]*>)? :: (~ )?(operator \W+|\w+) \($", joined[: joined.find("(") + 1])
    return f"{found[1]}::{found[3].replace(' ', '')}" if found and words[0] != "using" else None


def class_of(words):
    """The keyword of a class that the words define; None otherwise."""
    while words and words[0] == "template":
        words = words[angle_end(words, 1) :]
        if words and words[0] == "requires":
            words = words[next((at for at, word in enumerate(words) if word in ("struct", "class")), 0) :]
    return words[0] if words and words[0] in ("struct", "class") else None


def declarations_in(text):
    """Every declaration of a header, those of classes included, in order."""
    return list(declarations_of(TOKEN.findall(without_directives(text)), [], None, True))


def declarations_of(tokens, around, access, public):
    """The declarations among the tokens: `around` are the names outside, `access` is that of a class or None."""
    scopes = []  # of namespaces
    words, comment, place = [], "", 0
    gap = 0
    initialisers = False  # inside those of a constructor
    shared = ""  # a declaration right below another shares its comment
    while place < len(tokens):
        token = tokens[place]
        if token.startswith("///"):
            if not words and not token.startswith("///<"):
                comment = token if gap else comment + "\n" + token
                gap = 0
        elif token.startswith("//") or token.startswith("/*") or token.isspace():
            gap = gap + 1 if token == "\n" and tokens[place - 1] == "\n" else gap
        elif token == "{" and words[:1] in (["namespace"], ["inline"], ["extern"]) and "(" not in words and "=" not in words:
            scopes.append([word for word in words[1:] if re.fullmatch(r"\w+", word) and word != "inline"])
            words, comment = [], ""
        elif token == "}":
            if scopes:
                scopes.pop()
            words, comment = [], ""
        elif token == ":" and access and words[-1:] in (["public"], ["protected"], ["private"]) and len(words) == 1:
            access, words, comment, shared = words[0], [], "", ""
        elif token in ("{", ";"):
            last = matching(tokens, place) if token == "{" else place
            goes_on = token == "{" and (words[:1] == ["concept"] or "concept" in words or words[-1:] == ["requires"]
                                        or len(words) > 1 and words[-1] == ")" and requires_ends(words)
                                        or initialisers and re.fullmatch(r"\w+|>", words[-1]))
            if goes_on:
                words.append("{}")
            else:
                space = around + [part for scope in scopes for part in scope if part != "SHARDWRIGHT_ABI"]
                if space[:1] == ["shardwright"] and words:
                    shown = public and "detail" not in space and access in (None, "public")
                    name = name_of(words + (["{"] if token == "{" else []), token == "{")
                    comment = comment or (trailing(tokens, last) if gap else trailing(tokens, last) or shared)
                    kind = class_of(words) if token == "{" else None
                    inner = tokens[place + 1 : last]
                    if name is None:
                        name = outside_name(words)
                        shown = False
                    if name is not None:
                        body = inner if token == "{" and kind is None else None
                        yield Declaration("::".join([*space[1:], name]), words, comment, body, access is not None, shown)
                    if kind:
                        yield from declarations_of(inner, [*space, name or "(specialisation)"],
                                                   "public" if kind == "struct" else "private", shown and name is not None)
                    shared = comment
                words, comment = [], ""
                initialisers = False
            place = last
            gap = 0
        elif token in OPENING:
            last = matching(tokens, place)
            words += [each for each in tokens[place : last + 1] if not each.isspace() and not each.startswith("//")]
            place = last
        else:
            initialisers = initialisers or token == ":" and words[-1:] in ([")"], ["noexcept"])
            words.append(token)
        place += 1


def trailing(tokens, place):
    """The comment `///<` at the end of the line."""
    for token in tokens[place + 1 : place + 4]:
        if token.startswith("///<"):
            return "///" + token[4:]
        if not token.isspace() and token != ";" or token == "\n":
            break
    return ""


def requires_ends(words):
    """Whether the words end in `requires (...)`, the head of a requires expression."""
    depth = 0
    for place in range(len(words) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(words[place], 0)
        if depth == 0:
            return place > 1 and words[place - 1] == "requires" and words[place - 2] in ("requires", "=", "&&", "||")
    return False
