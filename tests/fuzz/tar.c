/* Fuzzer of the tar reader and of the list of images made from it. The header's checksums are corrected
 * first, or nothing else would ever be reached.
 *     make fuzz && build/fuzz/tar -max_total_time=300 CORPUS */
#define _GNU_SOURCE	/* memfd_create */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "data/index.h"
#include "data/source.h"

static void write_checksum(unsigned char *h)
{
	unsigned sum = 0;
	char text[16];

	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf(text, sizeof text, "%06o", sum & 0777777u);
	memcpy(h + 148, text, 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_index x = { .n = 0 };
	unsigned char block[512];
	char path[64];
	int fd = memfd_create("fuzz.tar", 0);

	if (fd < 0)
		return 0;
	for (size_t i = 0; i < size; i += sizeof block) {
		size_t n = size - i < sizeof block ? size - i : sizeof block;

		memcpy(block, data + i, n);
		/* Blocks that begin with a letter are taken for headers. */
		if (n == sizeof block && ((block[0] | 0x20) >= 'a' && (block[0] | 0x20) <= 'z'))
			write_checksum(block);
		if (write(fd, block, n) != (ssize_t)n)
			break;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!dlb_index_read(&x, path, NULL, true, NULL, &err)) {
		for (int64_t i = 0; i < x.n; i++)
			if (x.entry[i].at + x.entry[i].size > size || x.entry[i].label < 0 ||
			    x.entry[i].label >= x.n_classes)
				dlb_bug("an entry outside the file or the classes");
	} else if (!err.what[0]) {
		dlb_bug("refused without a word");
	}
	dlb_index_release(&x);
	close(fd);
	return 0;
}
