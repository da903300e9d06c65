/* Fuzzer of text and byte-pair vocabularies. The input is vocab.json, merges.txt and the text, divided by
 * zero bytes; where the first two are missing, the text alone goes through the alphabets and GPT-2's
 * pattern.
 *     make fuzz && build/fuzz/text -max_total_time=300 CORPUS */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "data/bpe.h"
#include "data/source.h"
#include "data/text.h"

static void by_alphabet(const uint8_t *p, size_t n, bool bytes)
{
	struct dlb_alphabet a;
	struct dlb_tokens t;
	struct dlb_error err = { .what = "" };

	if (dlb_alphabet_of(p, n, "fuzz.txt", bytes, &a, &err)) {
		if (bytes || !err.what[0])
			dlb_bug("bytes refused, or refused without a word");
		return;
	}
	if (dlb_alphabet_encode(&a, p, n, "fuzz.txt", bytes, &t, &err))
		dlb_bug("a text is not of its own alphabet");
	for (size_t i = 0; i < t.n; i++)
		if (t.id[i] >= (uint32_t)a.n)
			dlb_bug("token %u of %d", t.id[i], a.n);
	free(t.id);
	free(a.unit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *one = size ? memchr(data, 0, size) : NULL,
		      *two = one ? memchr(one + 1, 0, size - (size_t)(one + 1 - data)) : NULL;
	struct dlb_error err = { .what = "" };
	struct dlb_tokens t;
	struct dlb_bpe *b;

	if (!two) {
		/* tables of all code points: too slow for every input */
		if (size > 1 && data[0] == 'A' && data[1] == '#') {
			by_alphabet(data, size, true);
			by_alphabet(data, size, false);
		}
		for (size_t i = 0; i < size;) {
			size_t k = dlb_bpe_piece(data + i, size - i);

			if (!k || k > size - i)
				dlb_bug("a piece of %zu bytes", k);
			i += k;
		}
		return 0;
	}
	const struct dlb_bpe_file vocab = { data, (size_t)(one - data), "vocab.json" },
				  merges = { one + 1, (size_t)(two - one - 1), "merges.txt" };
	if (dlb_bpe_new(&b, &vocab, &merges, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	if (!dlb_bpe_encode(b, two + 1, size - (size_t)(two + 1 - data), "fuzz.txt", &t, &err)) {
		for (size_t i = 0; i < t.n; i++)
			if (t.id[i] >= dlb_bpe_vocabulary(b))
				dlb_bug("token %u of %lld", t.id[i], (long long)dlb_bpe_vocabulary(b));
		free(t.id);
	}
	dlb_bpe_free(b);
	return 0;
}
