#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens of generate against Python's tokenizers: `generate_tokenizers.py <examples_test> <source directory>`.

Tokenizers with the patterns of published families are trained there, and read the files of this repository, strings of
odd characters, and every character that Unicode has assigned.

Ends with 77, skipped, where Python has no tokenizers, or where the program was built without ICU.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"generate_tokenizers: skipped, {missing}")
    sys.exit(77)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
FALLBACK = ["fallback", "metaspace", "gemma"]  # to bytes, of characters without a token
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|end"]
ODD = [
    "", " ", "\n", "  \n\n \t x", "It's I'M he'LL they'\u017f we'Ve 'd'D", "a\u0301\u0327 \u212b \u1e9b\u0323 \ufb01 e\u0301",
    "\u1100\u1161\u11a8 \uac01 \u0958 \u2126", "x<|end<|end_of_text|>y<|begin_of_text|>", "\u00a0\u2003a \u3000b\u0085c\u180ed\u200be\u2028f\x0b",
    "1234567 \u0661\u0662\u0663\u0664 \u00bd\u2167\u3007", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\x00\x01\x7f\ue000\U0010ffff\ufffd", "\u0130\u0131 \u01c5 \u02b0", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u4f60\u597d\u3002 \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947", " " * 70 + "x" + "\n" * 70,
    "a" * 5000, "ab" * 3000 + " " * 3000, "...!!?\r\n\r\n--==//\n\n", "\t\tif (x)\n\t\t\treturn;\n", "\u2581 \u2581a",
]


def trained(name, files):
    falls_back = name in FALLBACK
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama3", byte_fallback=falls_back, fuse_unk=falls_back,
                                                unk_token="<unk>" if falls_back else None))
    special = [AddedToken(each, special=True, normalized=False) for each in SPECIAL]
    if falls_back:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
        special = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)] + special
        trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False, max_token_length=16)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # only for training
        tokenizer.train_from_iterator(files, trainer)
        tokenizer = json.loads(tokenizer.to_str())
        tokenizer["pre_tokenizer"] = None
        if name == "metaspace":  # as transformers 5 writes Llama's
            tokenizer["normalizer"] = None
            tokenizer["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
        if name == "gemma":
            tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
            tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
            tokenizer["decoder"]["decoders"].pop()
        tokenizer["added_tokens"] = [each for each in tokenizer["added_tokens"] if not each["content"].startswith("<0x")]
        return tokenizers.Tokenizer.from_str(json.dumps(tokenizer))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif name == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif name == "deepseek":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(each), "isolated") for each in DEEPSEEK]
                                                          + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        pattern = {"llama3": LLAMA3, "qwen": QWEN, "gpt4o": GPT4O}[name]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(files, trainer)
    if name == "llama3":
        start = tokenizer.token_to_id(SPECIAL[0])
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], start)])])
        tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=True)])
    return tokenizer


source = pathlib.Path(sys.argv[2])
files = [path.read_text() for kind in ("hpp", "cpp", "md", "py") for top in ("include", "docs", "examples", "tests")
         for path in sorted((source / top).rglob(f"*.{kind}"))]
generator = random.Random(5)
# Their NFC uses tables from before Unicode 14, which orders some newer marks differently.
assigned = [chr(code) for code in range(0x110000)
            if not 0xd800 <= code < 0xe000 and unicodedata.category(chr(code)) != "Cn"
            and (unicodedata.combining(chr(code)) == 0 or unicodedata.ucd_3_2_0.category(chr(code)) != "Cn")]
texts = {"repository": "\n".join(files), "assigned": "".join(assigned),
         "shuffled": " ".join("".join(generator.choices(assigned, k=12)) for _ in range(20000))}
texts.update({f"odd{number}": text for number, text in enumerate(ODD)})

with tempfile.TemporaryDirectory() as directory:
    directory = pathlib.Path(directory)
    for name, text in texts.items():
        (directory / f"{name}.txt").write_bytes(text.encode())
    made = {name: trained(name, files[:300]) for name in ("gpt2", "llama3", "qwen", "gpt4o", "smollm", "deepseek", *FALLBACK)}
    for name, tokenizer in made.items():
        tokenizer.save(str(directory / f"{name}.json"))
    done = subprocess.run([sys.argv[1], "[.tokenizers]"], capture_output=True, text=True,
                          env={**os.environ, "SHARDWRIGHT_PYTHON_DIRECTORY": str(directory)})
    if "build with ICU" in done.stdout:
        print("generate_tokenizers: skipped, the program was built without ICU")
        sys.exit(77)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = 0
    for name, tokenizer in made.items():
        total = 0
        for text_name, text in texts.items():
            wanted = tokenizer.encode(text).ids
            total += len(wanted)
            ids = [int(word) for word in (directory / f"{name}-{text_name}.ids").read_text().split()]
            decoded = (directory / f"{name}-{text_name}.decoded").read_bytes().decode(errors="replace")
            if name in ("fallback", "metaspace"):  # which strip the space that was put in front
                decoded = decoded.removeprefix(" ")
            if ids != wanted:
                at = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
                print(f"{name} {text_name}: from token {at} of {len(wanted)}: {ids[at:at + 8]} are not {wanted[at:at + 8]}, "
                      f"{tokenizer.decode(wanted[max(at - 3, 0):at + 8])!r}")
                wrong += 1
            if decoded != tokenizer.decode(wanted):
                print(f"{name} {text_name}: decoded {decoded[:60]!r} is not {tokenizer.decode(wanted)[:60]!r}")
                wrong += 1
        print(f"{name}: {len(texts)} texts, {sum(map(len, texts.values()))} characters, {total} tokens")
    assert wrong == 0, f"{wrong} texts differ"
