import unittest

from on import run


class Processes(unittest.TestCase):
    def test_threads_look_while_others_work(self):
        run("""
            import ebbmalloc, threading
            def work():
                for n in range(30):
                    kept = [bytearray(7 * i) for i in range(1000)]
                    assert ebbmalloc.stats()["live_bytes"] > 0
                    ebbmalloc.trim() if n % 5 else ebbmalloc.why()
            threads = [threading.Thread(target=work) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        """)

    def test_fork_in_a_program_with_threads(self):
        run("""
            import ebbmalloc, os, threading
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    [bytearray(7 * i) for i in range(1000)]
            threads = [threading.Thread(target=work) for _ in range(3)]
            [thread.start() for thread in threads]
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    kept = [bytearray(1000) for _ in range(1000)]
                    works = ebbmalloc.is_active() and ebbmalloc.stats() and ebbmalloc.why().lines
                    os._exit(0 if works else 1)
                assert os.waitpid(child, 0)[1] == 0
            stop.set()
        """)

    def test_multiprocessing_by_fork(self):
        self.multiprocessing("fork")

    def test_multiprocessing_by_forkserver(self):
        self.multiprocessing("forkserver")

    def test_multiprocessing_by_spawn(self):
        self.multiprocessing("spawn")

    # Children can call only functions of a module: they do not know the code of `-c`.
    def multiprocessing(self, method):
        run(f"""
            import ebbmalloc, multiprocessing
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                assert all(pool.starmap(ebbmalloc.is_active, [()] * 8))
                found = pool.starmap(ebbmalloc.stats, [()] * 8)
                assert all(statistics["live_bytes"] for statistics in found)
                sizes = range(100_000, 100_100)
                assert sum(map(len, pool.map(bytes, sizes))) == sum(sizes)
        """)
