# ImageMagick: pictures made, scaled, turned, blurred, joined, written in many formats, read back.
# packages: imagemagick
# also: check harden
# version: convert --version
# when: long
. "$(dirname "$0")/on.sh"

export MAGICK_THREAD_LIMIT=4
on convert -size 400x300 gradient:red-blue -fill white -draw 'circle 200,150 200,50' -swirl 90 a.png
on convert rose: -resize 300x200 -rotate 30 -blur 0x3 -colorspace Gray b.miff
on convert a.png b.miff -gravity center -composite -contrast-stretch 1% c.tiff
on convert a.png -quality 80 d.jpg
on convert a.png \( +clone -flip \) \( +clone -negate \) -append -crop 100x100 +repage tile.png
on montage tile-*.png -geometry 40x40+2+2 -tile 6x m.png
for picture in a.png b.miff c.tiff d.jpg m.png; do
    on identify -format '%f %wx%h %#\n' $picture
done
