#!/usr/bin/perl
# Builds, searches, sorts, thins out and drops hashes of hashes and of arrays, three times. Perl
# takes every string, array and hash table from malloc.
use strict;
use warnings;

use constant { ROUNDS => 3, RECORDS => 9_000 };

# Perl's own rand and the order of its hashes differ from run to run; this does not.
my $state = 20240229;

sub random {
    my ($below) = @_;
    $state = ($state * 1664525 + 1013904223) % 2**32;
    return int($state / 2**32 * $below);
}

my @syllables = qw(ebb flow tide sho re sa nd shel lgu llw ave dri ft anch or har bo ur ma st);

sub word {
    return join '', map { $syllables[random(scalar @syllables)] } 0 .. random(4);
}

my ($lines, $found) = (0, 0);
for my $round (1 .. ROUNDS) {
    my (%records, %index);
    for my $id (1 .. RECORDS) {
        my @words = map { word() } 1 .. 6;
        $records{$id} = { words => \@words, text => join(' ', @words) x (1 + random(8)) };
        push @{ $index{$_} }, $id for @words;
    }
    for my $word (sort keys %index) {
        $found += grep { index($records{$_}{text}, $word) >= 0 } @{ $index{$word} };
        $lines += @{ $index{$word} };
    }
    delete @records{ grep { $_ % 3 } keys %records };
    my $report = join "\n", map { "$_: " . uc $records{$_}{text} } sort { $a <=> $b } keys %records;
    my @rows = split /\n/, $report;
    die scalar(@rows) . " rows\n" if @rows != int(RECORDS / 3);
}
my $expected = ROUNDS * RECORDS * 6;
die "$lines lines, $found found, expected $expected\n"
    if $lines != $expected || $found != $expected;
