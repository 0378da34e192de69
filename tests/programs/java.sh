# Java: javac compiles a program that collects, sorts, formats and compresses in many threads.
# packages: openjdk-17-jdk-headless
# also: harden
# version: java -version
# timeout: 600
# when: long
. "$(dirname "$0")/on.sh"

cat > Load.java <<'JAVA'
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;
import java.util.zip.*;

public class Load {
    record Item(int id, String word, List<Integer> places) {}

    static String work(int seed) throws Exception {
        Map<String, Item> items = new TreeMap<>();
        for (int i = 0; i < 10000; i++) {
            int at = i;
            items.computeIfAbsent("word" + (long) i * seed % 2003,
                word -> new Item(at, word, new ArrayList<>())).places.add(i);
        }
        String text = items.values().stream().map(Item::toString).collect(Collectors.joining("\n"));
        long matches = Pattern.compile("\\d+7\\b").matcher(text).results().count();
        Deflater deflater = new Deflater();
        deflater.setInput(text.getBytes());
        deflater.finish();
        byte[] packed = new byte[text.length()];
        int size = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, size);
        byte[] whole = new byte[text.length()];
        int length = inflater.inflate(whole);
        inflater.end();
        ByteBuffer direct = ByteBuffer.allocateDirect(length);
        direct.put(whole, 0, length).flip();
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        hash.update(direct);
        return seed + ": " + items.size() + " " + matches + " " + (length == text.length()) + " "
            + HexFormat.of().formatHex(hash.digest(), 0, 8);
    }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<String>> results = new ArrayList<>();
        for (int seed : new int[] {2, 3, 5, 7, 11, 13, 17, 19})
            results.add(pool.submit(() -> work(seed)));
        for (Future<String> result : results) System.out.println(result.get());
        pool.shutdown();
        List<Thread> threads = IntStream.range(0, 300).mapToObj(n -> new Thread(() -> {
            for (int i = 0; i < 20; i++) ByteBuffer.allocateDirect(1000 + n * i);
        })).toList();
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        System.gc();
        System.out.println(threads.size() + " threads");
    }
}
JAVA
on javac Load.java
for collector in Serial G1 Z; do
    echo "collector: $collector"
    on java -Xmx512m -XX:+Use${collector}GC Load
done
