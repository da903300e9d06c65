/* Byte-pair encoding as in GPT-2; its vocabulary is a JSON file (bpe_json.c). */
#ifndef DLB_DATA_BPE_H
#define DLB_DATA_BPE_H
#include <stddef.h>
#include <stdint.h>
#include "data/text.h"

/* Length in bytes of the piece that GPT-2's pattern takes from the n > 0 bytes of UTF-8 at p. */
size_t dlb_bpe_piece(const unsigned char *p, size_t n);

/* Byte-pair encoding as in GPT-2: see bpe.c. */
struct dlb_bpe;
struct dlb_bpe_file { const unsigned char *p; size_t n; const char *name; };	/* a file's bytes and name */
int dlb_bpe_new(struct dlb_bpe **out, const struct dlb_bpe_file *vocab, const struct dlb_bpe_file *merges,
		struct dlb_error *err);
void dlb_bpe_free(struct dlb_bpe *b);
int64_t dlb_bpe_vocabulary(const struct dlb_bpe *b);	/* largest id + 1 */
int dlb_bpe_encode(struct dlb_bpe *b, const unsigned char *p, size_t n, const char *name,
		   struct dlb_tokens *t, struct dlb_error *err);
/* bpe_json.c: calls `each` for the pairs of vocab.json in file order: token
 * (borrowed during the call) and id. */
int dlb_vocab_read(const unsigned char *p, size_t n, const char *name,
		   int (*each)(void *ctx, const char *token, int64_t id, struct dlb_error *err), void *ctx,
		   struct dlb_error *err);
#endif
