"""Makes a client for each task. A cache of its method's results keeps the client."""

import functools


class Client:
    def __init__(self, name):
        self.name = name
        self.files = read_tree(name)

    @functools.lru_cache(maxsize=None)
    def find(self, path):
        return len(self.files) + len(path)


def read_tree(name):
    return [f"{name}/{nth:060}" for nth in range(200)]  # LEAK


def render(found):
    return "".join(f"<li>{found:060}</li>" for _ in range(300))


def main():
    pages = []
    for task in range(600):
        client = Client(f"repository-{task}")
        pages.append(render(client.find("src")))
        pages = pages[-20:]


main()
