# Ghostscript: a PostScript program with graphics, text and patterns, as PDF, picture and text.
# packages: ghostscript gsfonts
# also: check harden
# version: gs --version
# when: long
. "$(dirname "$0")/on.sh"

cat > page.ps <<'PS'
%!PS
/page { /n exch def
    gsave 300 400 translate
    0 1 71 { /k exch def gsave k 5 mul rotate k 72 div 1 k 72 div sub n 6 div setrgbcolor
        newpath 0 0 moveto 50 k add 20 200 n 20 mul add 100 200 0 curveto stroke grestore } for
    grestore
    /Times-Roman findfont 14 scalefont setfont
    0 1 30 { /k exch def 72 740 k 20 mul sub moveto (Line ) show k 10 string cvs show
        ( of page ) show n 10 string cvs show } for
    /d 200 dict def 0 1 400 { /k exch def d k 10 string cvs cvn k k mul put } for
    /a 2000 array def 0 1 1999 { a exch dup 2000 string pop put } for
    << /ShadingType 2 /ColorSpace /DeviceRGB /Coords [72 50 500 50] /Function
        << /FunctionType 2 /Domain [0 1] /C0 [1 0 0] /C1 [0 0 1] /N 1 >> >> 
    gsave newpath 72 30 428 60 rectclip shfill grestore
    showpage } def
1 1 5 { page } for
PS
render() { on gs -q -dNOPAUSE -dBATCH -dSAFER "$@"; }
render -sDEVICE=pdfwrite -o page.pdf page.ps
render -sDEVICE=ppmraw -r72 -o page-%d.ppm page.ps
cat page-*.ppm | digest
render -sDEVICE=png16m -r40 -dTextAlphaBits=4 -dGraphicsAlphaBits=4 -o pdf-%d.png page.pdf
cat pdf-*.png | digest
render -sDEVICE=txtwrite -o - page.pdf | digest
