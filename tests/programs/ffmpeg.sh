# ffmpeg on a test picture and a tone: filtered, encoded by several codecs in threads, decoded.
# packages: ffmpeg
# also: harden
# version: ffmpeg -version
# when: long
. "$(dirname "$0")/on.sh"

run() { on ffmpeg -nostdin -hide_banner -loglevel error -y "$@"; }
run -f lavfi -i testsrc=size=320x240:rate=25 -f lavfi -i sine=frequency=440 -t 3 -threads 4 \
    -flags +bitexact -fflags +bitexact \
    -c:v mpeg4 -c:a aac one.mkv
digest < one.mkv
run -i one.mkv -threads 4 -vf 'scale=200:150,hflip,boxblur=2,drawgrid=w=20' \
    -flags +bitexact -fflags +bitexact \
    -c:v ffv1 -c:a flac two.mkv
run -i two.mkv -map 0 -threads 4 -f framemd5 -flags +bitexact -fflags +bitexact - | digest
run -i one.mkv -threads 2 -c:v libx264 -preset veryfast -x264-params threads=2 -an \
    -flags +bitexact -fflags +bitexact three.mp4
run -i three.mp4 -threads 3 -f framemd5 - | tail -n 1
on ffprobe -v error -show_entries stream=codec_name,nb_read_frames -count_frames -of csv one.mkv
