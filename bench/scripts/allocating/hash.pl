# A hash of growing strings, and lists sorted and grouped by it.
use strict;
use warnings;
my (%text_of, @pairs, %by_length);
for my $i (1 .. 900000) {
    my $key = "key" . (($i * 7919) % 300007);
    $text_of{$key} .= "v$i";
    push @pairs, [$i, $key] if $i % 3 == 0;
}
my @sorted = sort { $a->[1] cmp $b->[1] } @pairs;
push @{$by_length{length $text_of{$_->[1]}}}, $_ for @sorted;
print scalar(@sorted), " ", scalar(keys %by_length), "\n";
