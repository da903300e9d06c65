#!/usr/bin/env bats
# Data of every format against the usual tools (Pillow, tokenizers; skipped without them), errors in files reported
# with their place, and a classifier trained from a folder of JPEGs that the test makes.
# DLB_TEST_PYTHON names a Python that has the packages numpy, PIL or tokenizers.
load helper

setup_file() {
	export images=$BATS_FILE_TMPDIR/images
	"$BUILD/tests/digits-images" "$images" 1000 4
	"$BUILD/tests/digits-images" -f 1437 "$BATS_FILE_TMPDIR/held" 360 4
	tar -C "$BATS_FILE_TMPDIR" --format=pax -cf "$BATS_FILE_TMPDIR/images.tar" images
	dlb-profile --analytic --batch 50 "$model" | dlb-costmodel -c cpu:2 | dlb-place -m 2 >"$BATS_FILE_TMPDIR/doc.json"
	dlb-profile --analytic --batch 50 "$model" | dlb-costmodel -c cpu:1 | dlb-place -m 2 >"$BATS_FILE_TMPDIR/one.json"
}
setup() {
	tmp=$BATS_TEST_TMPDIR dump=$BUILD/tests/data-dump doc=$BATS_FILE_TMPDIR/doc.json one=$BATS_FILE_TMPDIR/one.json
	tarred=$BATS_FILE_TMPDIR/images.tar
	augment=resize=10x10,random-crop=8,scale=1/255
}

# The first Python that has all the packages named: python_with PACKAGE...
python_with() {
	local p imports
	imports=$(IFS=,; echo "$*")
	for p in "${DLB_TEST_PYTHON:-python3}" /usr/bin/python3; do
		command -v "$p" >/dev/null && "$p" -c "import $imports" 2>/dev/null && { python=$p; return; }
	done
	skip "no Python with $*; DLB_TEST_PYTHON names one"
}

# Checks the message of a refused spec: wrong 'TEXT' dump's operands...
wrong() {
	local text=$1
	shift
	run -2 --separate-stderr "$dump" "$@"
	[[ ${#stderr_lines[@]} -eq 1 && -z $output && $stderr == *"$text"* ]] || { echo "no '$text' in: $stderr"; return 1; }
}

# bats test_tags=slow
@test "a classifier learns from a folder of JPEGs, and its tar gives the same losses" {
	for kind in folder tar; do
		data=$images
		[ $kind = folder ] || data=$tarred
		dlb-run --epochs 40 --data "images:$data" --test-data "images:$BATS_FILE_TMPDIR/held" --transform "$augment" \
			--optimizer adam --lr 0.005 --loss-log "$tmp/$kind" "$doc" >"$tmp/out.json"
		jq -e '.report.accuracy > 0.85' "$tmp/out.json" || { jq .report.accuracy "$tmp/out.json"; false; }
	done
	validates "$tmp/out.json"
	dlb-rebalance <"$tmp/out.json" >"$tmp/next.json"
	[ "$(wc -l <"$tmp/tar")" -eq 800 ]
	cmp "$tmp/folder" "$tmp/tar"
}

# bats test_tags=slow
@test "random crops: the same on one node and two, with one reader and three, and after a restart" {
	run_it() { dlb-run --data "images:$images" --transform "$augment,flip=0.3" "$@" >"$tmp/out.json"; jq -c .report.losses "$tmp/out.json"; }
	run_it --steps 30 "$doc" >"$tmp/two"
	run_it --steps 30 --readers 3 "$one" >"$tmp/one"
	cmp "$tmp/two" "$tmp/one"
	run_it --steps 13 --checkpoint "$tmp/ckpt" "$doc" >"$tmp/first"
	run_it --steps 17 --checkpoint "$tmp/ckpt" --readers 1 "$one" >"$tmp/rest"
	cmp <(jq -c . "$tmp/two") <(jq -c -s 'add' "$tmp/first" "$tmp/rest")
	# Random transforms have an effect: crops of the next epoch differ, test data have none.
	"$dump" -t "$augment" "images:$images" f32 1x8x8 10 >"$tmp/e0"
	"$dump" -t "$augment" -e 1 "images:$images" f32 1x8x8 10 >"$tmp/e1"
	"$dump" -t "$augment" -e 1 -r 4 "images:$images" f32 1x8x8 10 | cmp - "$tmp/e1"
	run ! cmp -s "$tmp/e0" "$tmp/e1"
	"$dump" -k -t "$augment,flip=1" "images:$images" f32 1x8x8 10 >"$tmp/test"
	"$dump" -t resize=10x10,crop=8,scale=1/255 "images:$images" f32 1x8x8 10 | cmp - "$tmp/test"
}

# bats test_tags=slow
@test "a killed run goes on as if nothing had been" {
	dlb-run --steps 400 --data "images:$images" --transform "$augment" --loss-log "$tmp/whole" "$one" >/dev/null
	dlb-run --until-step 400 --data "images:$images" --transform "$augment" --loss-log "$tmp/log" --checkpoint "$tmp/ckpt" \
		--checkpoint-every 20 "$one" >/dev/null &
	pid=$!
	for _ in $(seq 300); do
		[ -d "$tmp/ckpt/step-40" ] && break
		sleep 0.02
	done
	kill -9 $pid
	wait $pid || true
	dlb-run --until-step 400 --data "images:$images" --transform "$augment" --loss-log "$tmp/log" --checkpoint "$tmp/ckpt" "$one" >/dev/null
	cmp "$tmp/whole" "$tmp/log"
}

# bats test_tags=slow
@test "an image that is cut off or damaged ends the run with its place" {
	cp -R "$images" "$tmp/hurt"
	hurt=$(find "$tmp/hurt/7" -name '*.jpg' | sort | head -n 3 | tail -n 1)
	size=$(wc -c <"$hurt")
	truncate -s $((size - 40)) "$hurt"
	tar -C "$tmp" -cf "$tmp/hurt.tar" hurt
	for plan in "$one" "$doc"; do
		run -2 --separate-stderr dlb-run --epochs 1 --data "images:$tmp/hurt" --transform "$augment" "$plan"
		one_line dlb-run "$hurt: byte $((size - 40)): truncated"
		run -2 --separate-stderr dlb-run --epochs 1 --data "images:$tmp/hurt.tar" --transform "$augment" "$plan"
		one_line dlb-run "hurt.tar: ${hurt#"$tmp/"}: byte $((size - 40)) (" ' of the tar file): truncated'
	done
	# The error's position in the tar file is the end of the member.
	at=${stderr##*byte*(} at=${at%% of the tar*}
	dd if="$tmp/hurt.tar" bs=1 skip=$((at - size + 40)) count=$((size - 40)) 2>/dev/null | cmp - "$hurt"
	printf 'GIF89a.............' >"$hurt"
	wrong "byte 0: neither a JPEG nor a PNG" "images:$tmp/hurt" f32 1x32x32 10
	printf '\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\0\0\0\1\0\0\x08\x02\0\0\0\x8a\xa5\xf2\x92' >"$hurt"
	wrong "byte " "images:$tmp/hurt" f32 1x32x32 10
	rm "$hurt"
	run -2 --separate-stderr dlb-run --steps 1 --data "images:$tmp/nowhere" "$one"
	one_line dlb-run "'$tmp/nowhere'" 'No such file'
}

@test "test data that cannot be read end the run with one line" {
	cp -R "$images" "$tmp/hurt"
	hurt=$(find "$tmp/hurt" -name '*.jpg' | sort | tail -n 1)
	truncate -s 200 "$hurt"
	for plan in "$one" "$doc"; do
		run -2 --separate-stderr dlb-run --steps 2 --data "images:$images" --test-data "images:$tmp/hurt" --transform "$augment" "$plan"
		one_line dlb-run "$hurt: byte"
	done
}

@test "folders and labels that do not fit" {
	mkdir "$tmp/flat"
	cp "$images"/0/*.jpg "$tmp/flat"
	wrong 'is in no class' "images:$tmp/flat" f32 1x32x32 10
	for f in "$tmp/flat"/*.jpg; do echo "${f##*/} 1"; done >"$tmp/labels"
	"$dump" -l "images:$tmp/flat,labels=$tmp/labels" f32 1x32x32 10 | od -An -v -t d8 | grep -v -w 1 && false
	sed -i '2s/ 1$/ 12/' "$tmp/labels"
	wrong "outside the model's 0 to 9" "images:$tmp/flat,labels=$tmp/labels" f32 1x32x32 10
	sed -i '2s/ 12$//' "$tmp/labels"
	wrong "labels:2: byte " "images:$tmp/flat,labels=$tmp/labels" f32 1x32x32 10
	printf '# of the flat folder\n0000.jpg 1\n0001.jpg\0 1\n' >"$tmp/zero"
	wrong "$tmp/zero:3: byte 32: not a line of text" "images:$tmp/flat,labels=$tmp/zero" f32 1x32x32 10
	sed -i 2d "$tmp/labels"
	wrong 'no label for image' "images:$tmp/flat,labels=$tmp/labels" f32 1x32x32 10
	cp -R "$images" "$tmp/more"
	for c in a b; do mkdir "$tmp/more/$c" && cp "$images"/0/0000.jpg "$tmp/more/$c"; done
	wrong "has 12 classes (the last: 'b'), the model 10" "images:$tmp/more" f32 1x32x32 10
	# A class that the training data lack.
	run -2 --separate-stderr dlb-run --steps 1 --data "images:$images" --test-data "images:$tmp/more" --transform "$augment" "$one"
	one_line dlb-run "class 'a' is not among the 10 trained on"
	# Labels that are words, of test data: the line of one that the training data lack.
	for f in "$tmp/flat"/*.jpg; do echo "${f##*/} cat"; done | sed '1s/cat/dog/' >"$tmp/words"
	sed '3s/cat/cow/' "$tmp/words" >"$tmp/others"
	run -2 --separate-stderr dlb-run --steps 1 --data "images:$tmp/flat,labels=$tmp/words" --transform "$augment" \
		--test-data "images:$tmp/flat,labels=$tmp/others" "$one"
	one_line dlb-run "$tmp/others:3: class 'cow' is not among the 2 trained on"
	mkdir "$tmp/none"
	wrong "no .jpg, .jpeg or .png in '$tmp/none'" "images:$tmp/none" f32 1x32x32 10
	wrong 'resize=28x28' "images:$images" f32 1x28x28 10
	"$BUILD/tests/digits-images" -c -f 5 "$tmp/mixed" 1 4
	mkdir "$tmp/mixed/6"
	cp "$images"/0/0000.jpg "$tmp/mixed/6"
	wrong "mixed/6/0000.jpg: becomes 1x32x32, the first one 3x32x32; add channels=3" "images:$tmp/mixed" f32 3x32x32 0
	[ "$("$dump" -t channels=3 "images:$tmp/mixed" f32 3x32x32 0 | wc -c)" -eq $((2 * 3 * 32 * 32 * 4)) ]
	[ "$("$dump" -t channels=1 "images:$tmp/mixed" f32 1x32x32 0 | wc -c)" -eq $((2 * 32 * 32 * 4)) ]
}

@test "transforms that do not exist or do not fit" {
	for t in 'reszie=3' 'resize' 'resize=0' 'resize=3x' 'crop=-1' 'flip=2' 'random-crop=40' 'crop=33x8' 'resize=100000'; do
		run -2 --separate-stderr dlb-run --steps 1 --data "images:$images" --transform "$t" "$one"
		one_line dlb-run || { echo "$t"; false; }
	done
	run -2 --separate-stderr dlb-run --steps 1 --data "images:$images" --transform reszie=8 "$one"
	one_line dlb-run "did you mean 'resize=...'"
	run -2 --separate-stderr dlb-run --steps 1 --data "images:$images" --transform crop=40 "$one"
	one_line dlb-run 'the image is 32x32' 'resize or pad it first'
}

@test "steps that wait for samples say so" {
	"$BUILD/tests/digits-images" "$tmp/large" 100 90
	dlb-run --steps 6 --readers 1 --data "images:$tmp/large" --transform resize=8 "$one" | jq -e '
		.report | .nodes[0] as $n | $n.data_wait_s > $n.busy_s and $n.data_wait_s <= .step_s and $n.idle_s >= 0.9 * $n.data_wait_s'
}

# bats test_tags=slow
@test "images as Pillow reads and resizes them, to the bit" {
	python_with numpy PIL
	"$BUILD/tests/digits-images" -c "$tmp/colour" 40 5
	"$BUILD/tests/digits-images" -c -p "$tmp/png" 40 5
	"$python" - "$dump" "$tmp" <<'EOS'
import os, subprocess, sys
import numpy as np
from PIL import Image
dump, tmp = sys.argv[1:]
os.chdir(tmp)

def ours(spec, transform, shape):
    out = subprocess.run([dump, "-k", "-t", transform, spec, "f32", shape, "0"], stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, np.float32)

def files(d):
    return [os.path.join(d, c, f) for c in sorted(os.listdir(d)) for f in sorted(os.listdir(os.path.join(d, c)))]

def planes(im):
    a = np.asarray(im)
    return (a if a.ndim == 2 else a.transpose(2, 0, 1)).astype(np.float32).ravel()

def same(what, a, b):
    b = np.concatenate(b)
    assert a.shape == b.shape and (a == b).all(), what

for d in "colour", "png":
    F = [Image.open(f) for f in files(d)]
    same(d, ours("images:" + d, "", "3x40x40"), [planes(f) for f in F])
    same(d + " grey", ours("images:" + d, "channels=1", "1x40x40"), [planes(f.convert("L")) for f in F])
    same(d + " down", ours("images:" + d, "resize=11x17", "3x11x17"), [planes(f.resize((17, 11), Image.BILINEAR)) for f in F])
    same(d + " up", ours("images:" + d, "resize=53x40", "3x53x40"), [planes(f.resize((40, 53), Image.BILINEAR)) for f in F])
    mean, sd = np.float32([.5, .4, .3])[:, None, None], np.float32([.2, .3, .4])[:, None, None]
    same(d + " normalise", ours("images:" + d, "crop=30,scale=1/255,normalise=0.5:0.4:0.3/0.2:0.3:0.4", "3x30x30"),
         [((planes(f.crop((5, 5, 35, 35))).reshape(3, 30, 30) / np.float32(255) - mean) / sd).ravel() for f in F])

# Different sizes, progressive and not; the shorter side by torchvision's rule.
rng = np.random.default_rng(1)
for i in range(6):
    h, w = (int(v) for v in rng.integers(40, 200, 2))
    os.makedirs("photos/%d" % (i % 2), exist_ok=True)
    Image.fromarray((rng.random((h // 8 + 2, w // 8 + 2, 3)) * 255).astype("u1")).resize((w, h), Image.BICUBIC).save(
        "photos/%d/%d.jpg" % (i % 2, i), quality=85, progressive=bool(i & 2))
def middle(im):
    w, h = im.size
    im = im.resize((32, int(32 * h / w)) if w < h else (int(32 * w / h), 32), Image.BILINEAR)
    left, top = (int(round((v - 31) / 2.0)) for v in im.size)
    return planes(im.crop((left, top, left + 31, top + 31)))
same("photos", ours("images:photos", "resize=32,crop=31", "3x31x31"), [middle(Image.open(f)) for f in files("photos")])

# Every kind of PNG.
base = Image.fromarray((rng.random((20, 20, 3)) * 255).astype("u1"))
os.mkdir("kinds")
kinds = [base.convert("P"), base.convert("RGBA"), base]
for i, im in enumerate(kinds):
    im.save("kinds/%d.png" % i)
open("labels.csv", "w").write("".join("%d.png,%s\n" % (i, "xyz"[i]) for i in range(3)))
same("kinds", ours("images:kinds,labels=labels.csv", "", "3x20x20"), [planes(im.convert("RGB")) for im in kinds])
wide = (np.arange(400).reshape(20, 20) * 160).astype("u2")
grey = [base.convert("L"), base.convert("1"), base.convert("LA"), Image.fromarray(wide)]
os.mkdir("greys")
for i, im in enumerate(grey):
    os.mkdir("greys/%d" % i)
    im.save("greys/%d/x.png" % i)
same("greys", ours("images:greys", "", "1x20x20"),
     [planes(grey[0]), planes(grey[1].convert("L")), planes(grey[0]), np.round(wide.ravel() / 257.).astype("f")])
base.convert("CMYK").save("greys/3/y.jpg")
r = subprocess.run([dump, "images:greys", "f32", "1x20x20", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
assert r.returncode == 2 and "greys/3/y.jpg: byte" in r.stderr and "CMYK" in r.stderr, r.stderr
EOS
}

@test "byte pairs as the tokenizers package, over vocabularies that it trained" {
	gpt_and_text
	python_with tokenizers numpy
	"$python" - "$dump" "$text" "$tmp" <<'EOS'
import os, random, subprocess, sys
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
dump, shakespeare, tmp = sys.argv[1:]
os.chdir(tmp)
random.seed(5)
pool = [chr(c) for a, b in [(32, 127), (0xa0, 0x250), (0x370, 0x600), (0x900, 0x980), (0x2000, 0x2070), (0x3040, 0x3100),
                            (0x4e00, 0x4e50), (0x1f600, 0x1f640)] for c in range(a, b)] + [" "] * 300 + ["\n"] * 40 + ["'"] * 40
lines = ("Hello world's  test, don't! 123 \u00bd \u2167 \u0663\u0664 \u0939\u093f\u0928\u094d\u0926\u0940\n\n  \u65e5\u672c\u8a9e\u3002 "
         "na\u00efve \U0001f642 \t\ttabs\u00a0nbsp \u2003em\r\nwe'll they're I'M it'S 'tis '' 's\u3000 \u01c5 \u02b0 \u2075 \U0001d7d8 \x1c \x85 x\n")
open("mixed.txt", "w", newline="").write(lines * 30 + "".join(random.choice(pool) for _ in range(60000)) + "   ")
paths = {"shakespeare": shakespeare, "mixed": "mixed.txt"}
for name, path in paths.items():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([open(path, newline="").read()], trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.model.save(".", name)
    for other, text in paths.items():
        want = t.encode(open(text, newline="").read()).ids
        spec = "text:%s,vocab=%s-vocab.json,merges=%s-merges.txt" % (text, name, name)
        got = np.frombuffer(subprocess.run([dump, spec, "i64", "1", "0"], stdout=subprocess.PIPE, check=True).stdout, np.int64)
        assert got.tolist() == want[:-1], (name, other)
        r = subprocess.run([dump, spec, "i64", "8", "1999"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert r.returncode == 2 and "a vocabulary of 2000 tokens, input 'x' takes 1999" in r.stderr, r.stderr
EOS
}

@test "byte pairs by hand; what is wrong in their files is named" {
	v='{"a":0,"b":1,"c":2,"ab":3,"abc":4,"Ġ":5,"Ġa":6,"Ċ":7}'
	printf '%s' "$v" >"$tmp/v"
	printf '#version: 0.2\na b\nab c\nĠ a\n' >"$tmp/m"
	printf 'abcab a b\nc' >"$tmp/t"
	ids() { "$dump" "$@" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8 | od -An -v -t d8 | tr -s ' \n' ' '; }
	[ "$(ids)" = ' 4 3 6 5 1 7 ' ]
	[ "$(ids -l)" = ' 3 6 5 1 7 2 ' ]
	# As in GPT-2: bytes from 0xa1, but for 0xad, stand for themselves; 0x82 and 0xad are numbered from 256. Empty lines
	# are skipped, and ids may have gaps.
	printf '%s' '{"â":0,"Ĥ":1,"¬":2,"âĤ":3,"Â":4,"Ń":5,"®":6,"Â®":1100}' >"$tmp/v2"
	printf '#version: 0.2\n\nâ Ĥ\n\nÂ ®\n' >"$tmp/m2"
	printf '€\xc2\xad®€' >"$tmp/t2"
	[ "$("$dump" "text:$tmp/t2,vocab=$tmp/v2,merges=$tmp/m2" i64 1 1101 | od -An -v -t d8 | tr -s ' \n' ' ')" = ' 3 2 4 5 1100 3 ' ]
	sed -i 's/1100/2000/' "$tmp/v2"
	wrong "$tmp/v2: id 2000 in a vocabulary of 8 tokens" "text:$tmp/t2,vocab=$tmp/v2,merges=$tmp/m2" i64 1 2001
	printf 'abz' >"$tmp/t"
	wrong "$tmp/t: byte 2: the vocabulary has no token for byte 0x7a" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf 'ab\xc3(' >"$tmp/t"
	wrong "$tmp/t: byte 2: 0xc3 is not UTF-8" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf 'abc c' >"$tmp/t"
	wrong "a vocabulary of 8 tokens, input 'x' takes 7" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 7
	printf 'a b\nab d\n' >"$tmp/m"
	wrong "$tmp/m:2: byte 4: 'd' is not in the vocabulary" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf 'a b\nabc\n' >"$tmp/m"
	wrong "$tmp/m:2: byte 4: not two tokens" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf 'a b\na b\n' >"$tmp/m"
	wrong "$tmp/m:2: byte 4: the pair 'a b' a second time" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf '{"a":0,"b":0}' >"$tmp/v"
	wrong "have one id" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf '{"a":0,"b":-1}' >"$tmp/v"
	wrong "token 'b': an id from 0" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	printf '{"a":0,"b"' >"$tmp/v"
	wrong "$tmp/v: byte 10 (line 1)" "text:$tmp/t,vocab=$tmp/v,merges=$tmp/m" i64 1 8
	wrong 'two files' "text:$tmp/t,vocab=$tmp/v" i64 1 8
	wrong "no option 'vocba'" "text:$tmp/t,vocba=$tmp" i64 1 8
}

@test "text by character and by byte" {
	printf 'häußer ä' >"$tmp/t"
	ids() { "$dump" "$1" i64 "$2" 0 | od -An -v -t d8 | tr -s ' \n' ' '; }
	# blank e h r u ß ä
	[ "$(ids "text:$tmp/t" 1)" = ' 2 6 4 5 1 3 0 ' ]
	[ "$(ids "text:$tmp/t,level=byte" 2)" = ' 104 195 164 117 195 159 101 114 32 195 ' ]
	[ "$(ids "tokens:$tmp/t" 2)" = ' 2 7 6 4 7 5 1 3 0 7 ' ]
	wrong "a vocabulary of 7 characters, input 'x' takes 6" "text:$tmp/t" i64 1 6
	printf 'rehä' >"$tmp/u"
	[ "$(ids "text:$tmp/u,alphabet=$tmp/t" 1)" = ' 3 1 2 ' ]
	printf 'reh x' >"$tmp/u"
	wrong "$tmp/u: byte 4: U+0078 is not in the alphabet" "text:$tmp/u,alphabet=$tmp/t" i64 1 0
	printf 'ab\xff' >"$tmp/u"
	wrong "$tmp/u: byte 2: 0xff is not UTF-8" "text:$tmp/u" i64 1 0
	[ "$(ids "text:$tmp/u,level=byte" 1)" = ' 97 98 ' ]
	wrong "no level 'word'" "text:$tmp/u,level=word" i64 1 0
	printf 'a' >"$tmp/u"
	wrong 'too short' "text:$tmp/u" i64 1 0
	wrong 'too few for one sample' "text:$tmp/t" i64 20 0
}

@test "raw tokens" {
	for i in $(seq 0 20); do printf '%b' "\\x$(printf %02x $((i * 3)))\\x$(printf %02x $((i % 2)))"; done >"$tmp/t"
	ids() { "$dump" "$@" | od -An -v -t d8 | tr -s ' \n' ' '; }
	# Sample i of T tokens begins at i T, its labels one token later.
	[ "$(ids "tokens:$tmp/t,type=u16" i64 5 0)" = ' 0 259 6 265 12 271 18 277 24 283 30 289 36 295 42 301 48 307 54 313 ' ]
	[ "$(ids -l "tokens:$tmp/t,type=u16" i64 5 0)" = ' 259 6 265 12 271 18 277 24 283 30 289 36 295 42 301 48 307 54 313 60 ' ]
	[ "$(ids "tokens:$tmp/t,type=u8" i64 20 0 | cut -d' ' -f2-7)" = '0 0 3 1 6 0' ]
	[ "$(ids "tokens:$tmp/t,type=u32" i64 5 0 2>"$tmp/err" | wc -w)" -eq 0 ]
	grep -q 'byte 40: the file ends within a token of 4 bytes' "$tmp/err"
	wrong "byte 38: token 313 is outside what input 'x' takes, 0 to 312" "tokens:$tmp/t,type=u16" i64 5 313
	wrong "no type 'i9'" "tokens:$tmp/t,type=i9" i64 5 313
}

@test ".npy arrays: types, shapes, labels, and what cannot be read" {
	npy() { # FILE DESCR SHAPE PRINTF_DATA [ORDER] [VERSION]
		local header="{'descr': '$2', 'fortran_order': ${5:-False}, 'shape': ($3), }" n wide
		n=$((${#header} + 1))
		[ "${6:-1}" = 1 ] && wide='\0' || wide='\0\0\0'	# a length of two bytes, or four
		printf '\x93NUMPY%b%b%b%s\n' "\\x0${6:-1}\\0" "\\x$(printf %02x $n)" "$wide" "$header" >"$1"
		printf '%b' "$4" >>"$1"
	}
	npy "$tmp/y" '<i8' '2,' '\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0'
	show() { "$dump" "$@" f32 1x1x2 10 | od -An -v -t f4 | tr -s ' \n' ' '; }
	npy "$tmp/x" '<f4' '2, 2' '\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40'
	[ "$(show "npy:$tmp/x,$tmp/y")" = ' 1 2 3 4 ' ]
	[ "$(show -t scale=2 "npy:$tmp/x,$tmp/y")" = ' 2 4 6 8 ' ]
	[ "$("$dump" -l "npy:$tmp/x,$tmp/y" f32 1x1x2 10 | od -An -v -t d8 | tr -s ' \n' ' ')" = ' 3 1 ' ]
	npy "$tmp/x" '<i2' '2, 1, 2' '\1\0\xff\xff\3\0\0\1' False 2
	[ "$(show "npy:$tmp/x,$tmp/y")" = ' 1 -1 3 256 ' ]
	npy "$tmp/x" '|u1' '2, 2' '\1\2\3\xff' False 3
	[ "$(show "npy:$tmp/x,$tmp/y")" = ' 1 2 3 255 ' ]
	npy "$tmp/x" '|b1' '2, 2' '\1\0\0\1'
	[ "$(show "npy:$tmp/x,$tmp/y")" = ' 1 0 0 1 ' ]
	npy "$tmp/x" '<f8' '2, 2' '\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\xf0\xbf'
	[ "$(show "npy:$tmp/x,$tmp/y")" = ' 1 2 0.5 -1 ' ]
	npy "$tmp/x" '>f4' '2, 2' '................'
	wrong "$tmp/x: byte 20: type '>f4' is big-endian; save it as numpy.save(FILE, x.astype('<f4'))" "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '2, 2' '................' True
	wrong 'Fortran order; save it as numpy.save(FILE, numpy.ascontiguousarray(x))' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '|O' '2, 2' '................'
	wrong "not numbers" "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '2, 2' '...............'
	wrong "$tmp/x: truncated at byte" "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '2, 2' '.................'
	wrong 'longer than its header says' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '99999999999999999999, 2' '................'
	wrong 'too large' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '4294967296, 4294967296, 4294967296' '................'
	wrong 'too large' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '1000000000000, 2' '................'
	wrong 'truncated' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '2, 1, 1, 1, 2' '................'
	wrong 'samples of 4 dimensions; at most channels, height, width are read' -t scale=2 "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	npy "$tmp/x" '<f4' '2, 2' '................'
	wrong "label 3 of sample 0 is outside the model's 0 to 1" "npy:$tmp/x,$tmp/y" f32 1x1x2 2
	wrong "name 1 files, the model has 2 inputs: 'x', 'label' (labels)" "npy:$tmp/x" f32 1x1x2 10
	wrong "wants 3" "npy:$tmp/x,$tmp/y" f32 3 10
	npy "$tmp/y" '<i8' '1,' '\3\0\0\0\0\0\0\0'
	wrong "1 labels in '$tmp/y' for 2 samples" "npy:$tmp/x,$tmp/y" f32 1x1x2 10
	printf 'PK\3\4..........' >"$tmp/x"
	wrong 'npz' "npy:$tmp/x,$tmp/y" f32 1x1x2 10
}

@test ".npy as NumPy writes it: the digits give the losses that IDX gives" {
	python_with numpy
	"$python" - "$root/share/data/digits" "$tmp" <<'EOS'
import gzip, sys
import numpy as np
src, tmp = sys.argv[1:]
x = np.frombuffer(gzip.open(src + "/images-idx3-ubyte.gz").read()[16:], np.uint8).reshape(-1, 8, 8)
y = np.frombuffer(gzip.open(src + "/labels-idx1-ubyte.gz").read()[8:], np.uint8)
np.save(tmp + "/x.npy", x)
np.save(tmp + "/f.npy", (x / np.float32(16)).astype("f4"))
np.save(tmp + "/y.npy", y.astype("i8"))
EOS
	dlb-run --steps 20 "${digits[@]}" --loss-log "$tmp/a" "$one" >/dev/null
	dlb-run --steps 20 --data "npy:$tmp/x.npy,$tmp/y.npy" --transform scale=1/16 --loss-log "$tmp/b" "$one" >/dev/null
	dlb-run --steps 20 --data "npy:$tmp/f.npy,$tmp/y.npy" --loss-log "$tmp/c" "$one" >/dev/null
	cmp "$tmp/a" "$tmp/b"
	cmp "$tmp/a" "$tmp/c"
}

# bats test_tags=slow
@test ".npy for a model of several inputs" {
	dlrm=$DLB_TEST_DATA/onnx/models/dlrm.train.op17.dyn.onnx loss=()
	[ -r "$dlrm" ] || dlrm=$own/ranker/legacy.onnx loss=(--loss bce)
	python_with numpy
	"$python" - "$tmp" <<'EOS'
import sys
import numpy as np
r = np.random.default_rng(0)
dense = r.normal(size=(96, 13)).astype("f4")
np.save(sys.argv[1] + "/dense.npy", dense)
np.save(sys.argv[1] + "/idx.npy", r.integers(0, 10, (96, 4)).astype("i4"))
np.save(sys.argv[1] + "/label.npy", (dense[:, 0] > 0).astype("u1"))
EOS
	dlb-profile --analytic --batch 8 "${loss[@]}" "$dlrm" 2>/dev/null | dlb-costmodel -c cpu:2 | dlb-place >"$tmp/doc.json"
	dlb-run --epochs 20 --data "npy:$tmp/dense.npy,$tmp/idx.npy,$tmp/label.npy" --optimizer adam "$tmp/doc.json" >"$tmp/out.json"
	jq -e '.report.losses | (.[:12] | add) * 0.3 > (.[-12:] | add)' "$tmp/out.json"
	run -2 --separate-stderr dlb-run --steps 1 --data "npy:$tmp/dense.npy,$tmp/label.npy" "$tmp/doc.json"
	one_line dlb-run "name 2 files, the model has 3 inputs: 'dense', 'idx', 'label' (labels)"
	run -2 --separate-stderr dlb-run --steps 1 --data "npy:$tmp/idx.npy,$tmp/dense.npy,$tmp/label.npy" "$tmp/doc.json"
	one_line dlb-run "$tmp/idx.npy: samples of 4 (4 values), input 'dense' wants 13"
}

# bats test_tags=slow
@test "a GPT on characters: text: and tokens: give the same losses, test data the same vocabulary" {
	gpt_and_text
	head -c 20000 "$text" >"$tmp/train.txt"
	dlb-profile --analytic --batch 4 "$gpt" | dlb-costmodel -c cpu:1 | dlb-place >"$tmp/gpt.json"
	dlb-run --steps 3 --data "text:$text" --loss-log "$tmp/a" "$tmp/gpt.json" >/dev/null
	dlb-run --steps 3 --data "tokens:$text" --loss-log "$tmp/b" "$tmp/gpt.json" >/dev/null
	cmp "$tmp/a" "$tmp/b"
	dlb-run --steps 1 --data "text:$text" --test-data "text:$tmp/train.txt" "$tmp/gpt.json" | jq -e '.report.test_loss > 3'
	run -2 --separate-stderr dlb-run --steps 1 --data "text:$text,level=byte" "$tmp/gpt.json"
	one_line dlb-run 'a vocabulary of 256 bytes' 'takes 65'
}

@test "tar files: formats, names that climb, links, and what is cut off" {
	cp "$images/3/0003.jpg" "$tmp/a.jpg"
	mkdir -p "$tmp/t/x" "$tmp/t/y"
	long=$(printf 'n%.0s' $(seq 150))
	cp "$tmp/a.jpg" "$tmp/t/x/1.jpg"
	cp "$tmp/a.jpg" "$tmp/t/y/$long.jpg"
	touch "$tmp/t/README"
	"$dump" "images:$tmp/t" f32 1x32x32 2 >"$tmp/want"
	for format in pax gnu; do
		tar -C "$tmp/t" --format=$format -cf "$tmp/t.tar" .
		"$dump" "images:$tmp/t.tar" f32 1x32x32 2 | cmp - "$tmp/want"
	done
	size=$(wc -c <"$tmp/t.tar")
	for cut in 100 600 2000 $((size / 2)); do
		head -c $cut "$tmp/t.tar" >"$tmp/cut.tar"
		wrong 'byte' "images:$tmp/cut.tar" f32 1x32x32 2
	done
	tar -C "$tmp/t" --format=pax -cf "$tmp/pax.tar" x
	for record in 1 2; do	# without '=', before others that have it
		cp "$tmp/pax.tar" "$tmp/broken.tar"
		at=$(python3 - "$tmp/broken.tar" $record <<-'END'
			import re, sys
			tar = open(sys.argv[1], "rb").read()
			times = list(re.finditer(rb"\d+ [acm]time=", tar))
			at = times[int(sys.argv[2]) - 1]
			assert len(times) > 2 and b"\n" in tar[times[0].start():times[1].start()]
			open(sys.argv[1], "wb").write(tar[:at.end() - 1] + b"+" + tar[at.end():])
			print(at.start())
		END
		)
		wrong "byte $at: a broken pax record" "images:$tmp/broken.tar" f32 1x32x32 2
	done
	(cd "$tmp" && tar -P -cf climb.tar t/../t/../../"${tmp##*/}"/t/x/1.jpg t/../t/y)
	mkdir "$tmp/empty" && (cd "$tmp/empty" && "$dump" "images:$tmp/climb.tar" f32 1x32x32 2 >/dev/null; [ -z "$(ls -A)" ])
	ln "$tmp/t/x/1.jpg" "$tmp/t/y/2.jpg"
	tar -C "$tmp/t" -cf "$tmp/t.tar" x y
	wrong 'is a link or sparse; make the tar file with' "images:$tmp/t.tar" f32 1x32x32 2
	gzip -k "$tmp/t.tar"
	wrong 'a gzip file' "images:$tmp/t.tar.gz" f32 1x32x32 2
	printf 'no tar at all%2000s' x >"$tmp/x.tar"
	wrong 'not a tar file' "images:$tmp/x.tar" f32 1x32x32 2
	mkfifo "$tmp/pipe"
	wrong "'$tmp/pipe' is not a file" "images:$tmp/pipe" f32 1x32x32 2
	printf X | dd of="$tmp/t.tar" bs=1 seek=700 conv=notrunc 2>/dev/null
	wrong 'byte 512: no tar header: its checksum is wrong' "images:$tmp/t.tar" f32 1x32x32 2
}

@test "headers that promise more than there is: bounded" {
	mkdir -p "$tmp/bomb/a" "$tmp/bomb/b"
	cp "$images/3/0003.jpg" "$tmp/bomb/b"
	python3 - "$tmp/bomb/a" <<'EOS'
import struct, sys, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0" * 10 ** 6)) + chunk(b"IEND", b"")
open(sys.argv[1] + "/1.png", "wb").write(png)
EOS
	wrong 'an image of 100000x100000 pixels; 67108864 in all are read' "images:$tmp/bomb" f32 1x32x32 2
	# A JPEG of 65500 x 65500 in its frame header.
	rm "$tmp/bomb/a/1.png"
	python3 - "$images/3/0003.jpg" "$tmp/bomb/a/1.jpg" <<'EOS'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.find(b"\xff\xc0")
data[at + 5:at + 9] = b"\xff\xdc\xff\xdc"
open(sys.argv[2], "wb").write(data)
EOS
	wrong 'an image of 65500x65500 pixels' "images:$tmp/bomb" f32 1x32x32 2
}
