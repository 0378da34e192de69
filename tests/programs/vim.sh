# vim without a screen: substitutions, macros, undo, its own language, highlighting as HTML.
# packages: vim
# also: harden
# version: vim --version
. "$(dirname "$0")/on.sh"

seq -f 'line %g of the text { int x = 1; }' 4000 > text.c
cat > script.vim <<'VIM'
set nocompatible undolevels=1000 noswapfile
edit text.c
%s/line \(\d\+\)/\=submatch(1) * 2/
normal gg
let @q = "A //end\<Esc>jj"
normal 300@q
g/7 of/move 0
%sort n
undo
redo
let words = {}
for line in getline(1, '$')
  for word in split(line, '\W\+')
    let words[word] = get(words, word, 0) + 1
  endfor
endfor
write! changed.c
call writefile([len(words), words['text'], line('$')], 'words')
function! Fib(n)
  return a:n < 2 ? a:n : Fib(a:n - 1) + Fib(a:n - 2)
endfunction
call writefile([Fib(12)], 'words', 'a')
1,100d
let big = repeat('x', 500000)
put =big
call writefile([strlen(getline('.'))], 'words', 'a')
qall!
VIM
on vim -n -e -s -u NONE -S script.vim < /dev/null > vim.log
cat words
digest < changed.c
