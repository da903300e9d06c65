/* The 8x8 digits of share/data/digits, built into the library, so they are available wherever the
 * tools are installed. The assembler includes the gzip files; paths are relative to the top of
 * the source tree, where make runs. */
#include "data/idx.h"
#include "data/source.h"

#define CARRY(symbol, file) \
	__asm__(".section .rodata\n" \
		".global " #symbol ", " #symbol "_end\n" \
		#symbol ":\n.incbin \"" file "\"\n" \
		#symbol "_end:\n.byte 0\n" \
		".previous\n"); \
	extern const unsigned char symbol[], symbol##_end[]

CARRY(dlb_digits_images_gz, "share/data/digits/images-idx3-ubyte.gz");
CARRY(dlb_digits_labels_gz, "share/data/digits/labels-idx1-ubyte.gz");

int dlb_digits_read(struct dlb_idx *images, struct dlb_idx *labels, struct dlb_error *err)
{
	if (dlb_idx_parse(dlb_digits_images_gz, (size_t)(dlb_digits_images_gz_end - dlb_digits_images_gz),
			  "digits", images, err))
		return -1;
	if (dlb_idx_parse(dlb_digits_labels_gz, (size_t)(dlb_digits_labels_gz_end - dlb_digits_labels_gz),
			  "digits", labels, err)) {
		dlb_idx_release(images);
		return -1;
	}
	return 0;
}
