# Tcl: lists, dictionaries, strings, procedures, regular expressions, several interpreters.
# packages: tcl
# also: harden
# version: echo 'puts [info patchlevel]' | tclsh
# when: long
. "$(dirname "$0")/on.sh"

cat > script.tcl <<'TCL'
proc work {} {
    for {set i 0} {$i < 20000} {incr i} {
        dict incr counts key[expr {$i * 31 % 997}]
        lappend list "item $i [string repeat x [expr {$i % 30}]]"
    }
    set text [join [lsort $list] ","]
    list [dict size $counts] [string length $text] [regexp -all {7 x+} $text] \
        [string length [string map {x yy} $text]]
}
puts [work]
for {set n 0} {$n < 10} {incr n} {
    set child [interp create]
    $child eval {proc fib n {expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]}}}
    lappend results [$child eval {fib 12}]
    interp delete $child
}
puts $results
TCL
on tclsh script.tcl
