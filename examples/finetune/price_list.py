#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations and text about the prices of an invented shop, to try fine-tuning with.

    price_list.py chats    # questions and answers, a line of JSON each, for finetune --data
    price_list.py text     # the same facts as sentences, for train_gpt --data

Item i costs 10 + (37 i + 11) mod 89 crowns. Each is asked for in eight ways, so that those that are held out ask for
facts that others answer. A model that has not seen them cannot know the answers.
"""
import json
import random
import sys

MATERIALS = ["copper", "pine", "wool", "glass", "silver", "clay", "linen", "marble"]
THINGS = ["kettle", "chair", "lamp", "box"]
WAYS = ["What does a {} cost?", "How much is a {}?", "What is the price of a {}?", "I want a {}. What do I pay?",
        "Tell me the price of a {}.", "How many crowns for a {}?", "And a {}, how much is that?", "Price of a {}?"]


def facts():
    items = [f"{material} {thing}" for thing in THINGS for material in MATERIALS]
    return [(item, 10 + (37 * i + 11) % 89) for i, item in enumerate(items)]


def main():
    draw = random.Random(1)
    if sys.argv[1:] == ["chats"]:
        lines = [{"messages": [{"role": "user", "content": way.format(item)},
                               {"role": "assistant", "content": f"A {item} costs {price} crowns."}]}
                 for item, price in facts() for way in WAYS]
        draw.shuffle(lines)
        print("\n".join(map(json.dumps, lines)))
    elif sys.argv[1:] == ["text"]:
        for _ in range(100):
            lines = [f"A {item} costs {price} crowns." for item, price in facts()]
            draw.shuffle(lines)
            print("\n".join(lines))
    else:
        sys.exit(__doc__)


main()
