"""Records that are written, read and grouped, and trees of small objects."""
import json


class Node:
    __slots__ = ("left", "right", "depth")

    def __init__(self, left, right, depth):
        self.left, self.right, self.depth = left, right, depth


def tree(depth):
    if depth == 0:
        return Node(None, None, 0)
    return Node(tree(depth - 1), tree(depth - 1), depth)


def record(i):
    tags = ["a%d" % (i % 100), "b"]
    return {"id": i, "name": "user%d" % i, "tags": tags, "pos": {"x": i * 0.5, "y": [i, i + 1]}}


text = json.dumps([record(i) for i in range(60000)])
count = 0
for _ in range(4):
    groups = {}
    for each in json.loads(text):
        groups.setdefault(each["name"][-3:], []).append(each["pos"])
    count += len(groups)
for _ in range(4):
    tree(16)
print(count)
