/* Reads vocab.json, the vocabulary of byte-pair encoding: {"token": id, ...}. */
#include <jansson.h>
#include "data/bpe.h"
#include "data/source.h"

int dlb_vocab_read(const unsigned char *p, size_t n, const char *name,
		   int (*each)(void *ctx, const char *token, int64_t id, struct dlb_error *err), void *ctx,
		   struct dlb_error *err)
{
	json_error_t e;
	json_t *root = json_loadb((const char *)p, n, JSON_REJECT_DUPLICATES, &e), *value;
	const char *token;
	int rc = 0;

	if (!root)
		return dlb_fail(err, name, "byte %d (line %d): %s", e.position, e.line, e.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return dlb_fail(err, name, "byte 0: an object of tokens and their ids is expected");
	}
	json_object_foreach(root, token, value) {
		if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		    json_integer_value(value) >= INT32_MAX)
			rc = dlb_fail(err, name, "token '%.64s': an id from 0 is expected", token);
		else
			rc = each(ctx, token, json_integer_value(value), err);
		if (rc)
			break;
	}
	json_decref(root);
	return rc;
}
