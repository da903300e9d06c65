/* The images of folders and tar files: which files are images, their classes and order, labels from files,
 * and what is refused, with line and byte. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/index.h"
#include "util/mem.h"
#include "check.h"

static char dir[] = "/tmp/dlb-test-XXXXXX", made[128][400], got[2000];
static int n_made, n_cases;

/* "%D" in a message stands for the test's folder. */
static const char *in_dir(const char *text)
{
	static char out[600];
	const char *at = strstr(text, "%D");

	snprintf(out, sizeof out, "%.*s%s%s", at ? (int)(at - text) : (int)strlen(text), text, at ? dir : "",
		 at ? at + 2 : "");
	return out;
}

static const char *path_of(const char *name)
{
	static char path[400];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void note(const char *path)
{
	assert(IS(n_made, <, DLB_LEN(made)));
	snprintf(made[n_made++], sizeof made[0], "%s", path);
}

/* Makes a file and the folders above it. */
static void put(const char *name, const char *bytes, size_t n)
{
	char path[400];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		if (stat(path, &st)) {
			assert(IS(mkdir(path, 0700), ==, 0));
			note(path);
		}
		*p = '/';
	}
	FILE *f = fopen(path, "wb");
	assert(f && IS(fwrite(bytes, 1, n, f), ==, n) && !fclose(f));
	note(path);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

static void put_images(const char *const *name, int n)
{
	for (int i = 0; i < n; i++)
		put(name[i], "12345678", (size_t)i);
}
#define IMAGES(...) \
	put_images((const char *const[]){ __VA_ARGS__ }, DLB_LEN(((const char *const[]){ __VA_ARGS__ })))

/* A tar file of these members, one byte each; a name that ends in '>' is a link, of none. */
static void put_tar(const char *name, const char *const *member, int n)
{
	static char blocks[64 * 512];
	size_t at = 0;

	memset(blocks, 0, sizeof blocks);
	for (int i = 0; i < n; i++) {
		char *h = blocks + at;
		const size_t length = strlen(member[i]);
		const bool link = member[i][length - 1] == '>';
		unsigned sum = 0;

		memcpy(h, member[i], length - link);
		snprintf(h + 124, 12, "%011o", !link);
		memset(h + 148, ' ', 8);
		h[156] = link ? '2' : '0';
		for (int k = 0; k < 512; k++)
			sum += (unsigned char)h[k];
		snprintf(h + 148, 8, "%06o", sum);
		at += link ? 512 : 1024;
	}
	put(name, blocks, at + 1024);
}
#define TAR(name, ...) \
	put_tar(name, (const char *const[]){ __VA_ARGS__ }, DLB_LEN(((const char *const[]){ __VA_ARGS__ })))

static void clean(void)
{
	while (n_made)
		remove(made[--n_made]);
}

/* "LABEL:NAME,AT,SIZE ..." of the images, then the classes. */
static void say(const struct dlb_index *x)
{
	size_t at = 0;

	for (int64_t i = 0; i < x->n; i++)
		at += (size_t)snprintf(got + at, sizeof got - at, "%d:%s,%llu,%llu ", x->entry[i].label,
				       x->entry[i].name, (unsigned long long)x->entry[i].at,
				       (unsigned long long)x->entry[i].size);
	for (int i = 0; i < x->n_classes; i++)
		at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", i ? " " : "= ", x->class[i]);
}

static int read_index(struct dlb_index *x, const char *name, const char *labels, bool classes,
		      const struct dlb_index *like, struct dlb_error *err)
{
	char file[400] = "";

	*x = (struct dlb_index){ .n = 0 };
	*err = (struct dlb_error){ .what = "" };
	if (labels)
		snprintf(file, sizeof file, "%s", path_of(labels));
	n_cases++;
	return dlb_index_read(x, path_of(name), labels ? file : NULL, classes, like, err);
}

static void gives(const char *name, const char *labels, bool classes, const struct dlb_index *like,
		  const char *want)
{
	struct dlb_index x;
	struct dlb_error err;

	if (read_index(&x, name, labels, classes, like, &err)) {
		fprintf(stderr, "%s: %s: %s\n", want, err.where, err.what);
		abort();
	}
	say(&x);
	assert(SAME(got, want));
	dlb_index_release(&x);
	assert(!x.entry && !x.n && !x.root);
}

static void refused(const char *name, const char *labels, const struct dlb_index *like, const char *where,
		    const char *what, const char *hint)
{
	struct dlb_index x;
	struct dlb_error err;

	assert(IS(read_index(&x, name, labels, true, like, &err), ==, -1));
	assert(SAME(err.where, in_dir(where)));
	assert(SAME(err.what, in_dir(what)));
	assert(SAME(err.hint, hint));
	dlb_index_release(&x);
}

static void folders(void)
{
	char deep[200] = "deep";

	IMAGES("a/x/2.jpg", "a/x/10.jpeg", "a/y/1.png", "a/w/deeper/1.JPG", "a/y/no.txt", "a/y/.hidden.jpg",
	       "a/.no/1.jpg", "a/x/jpg");
	gives("a", NULL, true, NULL,
	      "0:w/deeper/1.JPG,0,3 1:x/10.jpeg,0,1 1:x/2.jpg,0,0 2:y/1.png,0,2 = w x y");
	gives("a", NULL, false, NULL,
	      "-1:w/deeper/1.JPG,0,3 -1:x/10.jpeg,0,1 -1:x/2.jpg,0,0 -1:y/1.png,0,2 ");
	IMAGES("b/all/in/m/1.jpg", "b/all/in/n/1.jpg", "b/all/in/me/1.jpg");
	gives("b", NULL, true, NULL,
	      "0:all/in/m/1.jpg,0,0 1:all/in/me/1.jpg,0,2 2:all/in/n/1.jpg,0,1 = m me n");
	IMAGES("one/in/a/class/1.jpg");
	refused("one", NULL, NULL, "", "image 'in/a/class/1.jpg' of '%D/one' is in no class folder",
		"one folder a class, or images:PATH,labels=FILE with a line \"NAME LABEL\" an image");
	IMAGES("two/a/1.jpg", "two/a/2.jpg"); /* a shared folder is no class */
	refused("two", NULL, NULL, "", "image 'a/1.jpg' of '%D/two' is in no class folder",
		"one folder a class, or images:PATH,labels=FILE with a line \"NAME LABEL\" an image");
	put_text("none/a/1.gif", "");
	refused("none", NULL, NULL, "", "no .jpg, .jpeg or .png in '%D/none'", "");
	refused("nowhere", NULL, NULL, "", "cannot open '%D/nowhere': No such file or directory", "");
	for (int i = 0; i < 33; i++) {
		strcat(deep, "/d");
		if (i == 31) {
			char name[220];

			snprintf(name, sizeof name, "%s/1.jpg", deep);
			put_text(name, "");
			gives("deep", NULL, false, NULL,
			      "-1:d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/"
			      "1.jpg,0,0 ");
		}
	}
	strcat(deep, "/1.jpg");
	put_text(deep, "");
	refused("deep", NULL, NULL, "", "folders in '%D/deep' are nested more than 32 deep",
		"does a link lead back?");
	clean();
}

static void tars(void)
{
	TAR("a.tar", "./x/2.jpg", "x/.hidden.jpg", ".//y/1.png", "/w/1.jpg", "no.txt>", "x/10.jpeg",
	    "././x/no");
	gives("a.tar", NULL, true, NULL,
	      "0:w/1.jpg,3584,1 1:x/10.jpeg,5120,1 1:x/2.jpg,512,1 2:y/1.png,2560,1 = w x y");
	/* of two members of one name the last counts, as when unpacked */
	TAR("b.tar", "x/1.jpg", "y/1.jpg", "./x/1.jpg", "x/2.jpg", "/x/1.jpg", "y/1.jpg");
	gives("b.tar", NULL, true, NULL, "0:x/1.jpg,4608,1 0:x/2.jpg,3584,1 1:y/1.jpg,5632,1 = x y");
	TAR("c.tar", ".1.jpg", "2.jpg");
	gives("c.tar", NULL, false, NULL, "-1:2.jpg,1536,1 ");
	TAR("d.tar", "x/1.jpg", "y/.2.jpg>", "./y/2.jpg>");
	refused("d.tar", NULL, NULL, "%D/d.tar", "byte 1536: member 'y/2.jpg' is a link or sparse",
		"make the tar file with --dereference --hard-dereference");
	clean();
}

static void label_files(void)
{
	IMAGES("a/in/1.jpg", "a/in/2.jpg", "a/in/a b.jpg", "a/in/c/3.jpg");
	/* the whole name or the name below the shared folders; the last blank, tab or comma ends it */
	put_text("numbers", "# in/1.jpg 7\nin/1.jpg 3\n\n2.jpg,\t 12\r\nin/a b.jpg , 0\n   \nc/3.jpg\t3");
	gives("a", "numbers", true, NULL,
	      "0:in/a b.jpg,0,2 3:in/1.jpg,0,0 3:in/c/3.jpg,0,3 12:in/2.jpg,0,1 ");
	put_text("words", "1.jpg dog\n2.jpg cat\na b.jpg 5\nin/c/3.jpg dog\n");
	gives("a", "words", true, NULL,
	      "0:in/a b.jpg,0,2 1:in/2.jpg,0,1 2:in/1.jpg,0,0 2:in/c/3.jpg,0,3 = 5 cat dog");
	put_text("large", "1.jpg 2147483647\n2.jpg 0\na b.jpg 00\nc/3.jpg 1\n");
	gives("a", "large", false, NULL,
	      "0:in/2.jpg,0,1 0:in/a b.jpg,0,2 1:in/c/3.jpg,0,3 2147483647:in/1.jpg,0,0 ");
	put_text("words2", "1.jpg 2147483648\n2.jpg 0\na b.jpg 00\nc/3.jpg -1\n"); /* not all are numbers */
	gives("a", "words2", false, NULL,
	      "0:in/c/3.jpg,0,3 1:in/2.jpg,0,1 2:in/a b.jpg,0,2 3:in/1.jpg,0,0 = -1 0 00 2147483648");
	put_text("short", "1.jpg 1\n2.jpg\n");
	refused("a", "short", NULL, "%D/short:2", "byte 8: no name and label", "NAME LABEL, a line each");
	put_text("short", "1.jpg 1\n 2\n");
	refused("a", "short", NULL, "%D/short:2", "byte 8: no name and label", "NAME LABEL, a line each");
	put_text("short", "1.jpg,\n2.jpg 1\n");
	refused("a", "short", NULL, "%D/short:1", "byte 0: no name and label", "NAME LABEL, a line each");
	put("zero", "1.jpg 1\n2.jpg \0002\n", 17);
	refused("a", "zero", NULL, "%D/zero:2", "byte 8: not a line of text", "");
	put_text("twice", "2.jpg 1\n1.jpg 2\n# 3\na b.jpg 1\n1.jpg 3\nc/3.jpg 1\n");
	refused("a", "twice", NULL, "%D/twice:5", "a second label for '1.jpg'", "");
	put_text("twice", "1.jpg 2\n1.jpg 3\n# 3\na b.jpg 1\nc/3.jpg 1\n2.jpg 1\n");
	refused("a", "twice", NULL, "%D/twice:2", "a second label for '1.jpg'", "");
	put_text("missing", "2.jpg 1\n1.jpg 2\nc/3.jpg 1\n");
	refused("a", "missing", NULL, "%D/missing", "no label for image 'in/a b.jpg' of '%D/a'", "");
	put_text("more", "2.jpg 1\n1.jpg 2\nc/3.jpg 1\nd.jpg 4\na b.jpg 1\n");
	refused("a", "more", NULL, "%D/more:4", "no image 'd.jpg' in '%D/a'", "");
	put_text("empty", "");
	refused("a", "empty", NULL, "%D/empty", "no label for image 'in/1.jpg' of '%D/a'", "");
	clean();
}

/* Test data have the classes of the training data, in their order. */
static void like_another(void)
{
	struct dlb_index train;
	struct dlb_error err;

	IMAGES("a/cat/1.jpg", "a/dog/1.jpg", "a/eel/1.jpg", "b/dog/1.jpg", "b/eel/1.jpg", "c/dog/1.jpg",
	       "c/cow/1.jpg");
	assert(IS(read_index(&train, "a", NULL, true, NULL, &err), ==, 0));
	gives("b", NULL, true, &train, "1:dog/1.jpg,0,3 2:eel/1.jpg,0,4 = cat dog eel");
	refused("c", NULL, &train, "%D/c", "class 'cow' is not among the 3 trained on",
		"did you mean 'cat'?");
	put_text("words", "dog/1.jpg eel\neel/1.jpg cat\n");
	gives("b", "words", true, &train, "0:eel/1.jpg,0,4 2:dog/1.jpg,0,3 = cat dog eel");
	put_text("words", "dog/1.jpg eel\neel/1.jpg cats\n");
	refused("b", "words", &train, "%D/words:2", "class 'cats' is not among the 3 trained on",
		"did you mean 'cat'?");
	put_text("words", "dog/1.jpg 4\neel/1.jpg 0\n");
	gives("b", "words", true, &train, "0:eel/1.jpg,0,4 4:dog/1.jpg,0,3 ");
	dlb_index_release(&train);
	clean();
}

int main(void)
{
	assert(mkdtemp(dir));
	folders();
	tars();
	label_files();
	like_another();
	assert(IS(rmdir(dir), ==, 0));
	printf("%d indexes\n", n_cases);
	return 0;
}
