# Perl with hashes, regular expressions, sorting, closures, children.
# packages: perl
# also: harden
# version: perl -e "print \$^V"
. "$(dirname "$0")/on.sh"

export PERL_HASH_SEED=0
on perl - <<'PERL'
use strict;
use warnings;

my (%count, %index);
for my $i (1 .. 200_000) {
    my $key = "key" . ($i * 7919 % 5003);
    $count{$key}++;
    push @{ $index{ length $key } }, $i if $i % 10 == 0;
}
my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "keys: ", scalar @sorted, ", first: $sorted[0], last: $sorted[-1]\n";
print "lengths: ", join(",", map { "$_:" . scalar @{ $index{$_} } } sort keys %index), "\n";

my $text = join " ", map { "w$_=" . ($_ * $_) } 1 .. 20_000;
my $sum = 0;
$sum += $2 while $text =~ /\bw(\d*7)=(\d+)/g;
(my $swapped = $text) =~ s/w(\d+)=(\d+)/$2:$1/g;
print "sum: $sum, length: ", length $swapped, "\n";

my @closures = map { my $n = $_; sub { $n + shift } } 1 .. 10_000;
my $total = 0;
$total += $_->(1) for @closures;
print "closures: $total\n";

for my $n (1 .. 20) {
    my $pid = open(my $child, "-|") // die "fork: $!";
    if ($pid == 0) {
        my %own = map { $_ => "x" x $_ } 1 .. 300;
        print length join "", @own{ 1 .. 100 + $n };
        exit 0;
    }
    print "child $n: ", <$child>, "\n";
    close $child or die "child $n failed: $?";
}
PERL
