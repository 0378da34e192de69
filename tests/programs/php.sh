# PHP: arrays, strings, regular expressions, JSON, closures; on its own allocator and on malloc.
# packages: php-cli
# also: harden
# version: php --version
# when: long
. "$(dirname "$0")/on.sh"

cat > script.php <<'PHP'
<?php
$counts = [];
$words = [];
for ($i = 0; $i < 20000; $i++) {
    $key = "key" . $i * 7919 % 5003;
    $counts[$key] = ($counts[$key] ?? 0) + 1;
    if ($i % 10 == 0) $words[] = "$key:$counts[$key]";
}
ksort($counts);
$text = json_encode([$counts, $words]);
echo count($counts), " ", json_encode(json_decode($text)) === $text ? "same" : "other", " ";
echo md5($text), "\n";
echo preg_match_all('/key\d*7":(\d+)/', $text, $found), " ", array_sum($found[1]), "\n";
echo strlen(preg_replace_callback('/\d+/', fn($m) => $m[0] * 2, $text)), "\n";
function numbers($n) { for ($i = 0; $i < $n; $i++) yield $i => str_repeat("x", $i % 100); }
$sum = 0;
foreach (numbers(10000) as $n => $x) $sum += $n * strlen($x);
echo $sum, "\n";
class Node { public $next, $prev, $text; }
for ($round = 0; $round < 20; $round++) {
    $first = $last = new Node;
    for ($i = 0; $i < 500; $i++) {
        $n = new Node;
        $n->prev = $last;
        $last->next = $n;
        $n->text = str_repeat("y", $i);
        $last = $n;
    }
    $last->next = $first; $first->prev = $last;
}
unset($first, $last, $n);
echo gc_collect_cycles() > 0 ? "collected" : "nothing", "\n";
$packed = gzcompress(str_repeat($text, 3));
echo strlen(gzuncompress($packed)), " ", strlen(serialize(unserialize(serialize($counts)))), "\n";
PHP
on php script.php
USE_ZEND_ALLOC=0 on php script.php
on php -n script.php
USE_ZEND_ALLOC=0 on php -n script.php
