/* How replicas combine gradients or weights: options, members of the plan section, defaults. See plan.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "plan/by_class.h"
#include "plan/plan.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

void dlb_sharing_init(struct dlb_sharing *s)
{
	*s = (struct dlb_sharing){ .allreduce = dlb_allreduces[0]->name,
				   .compress = "none",
				   .param_server = -1 };
}

/* Steps between means over all replicas: the default with gossip; the most steps with which accuracy is half
 * a point below that of sums, with sorted shards and with sorted shards that exchange samples (lenet5 on
 * Fashion-MNIST, tests/bench/gossip). Replicas with equal distributions of samples stay within a percent of
 * each other for long. Replicas that have different classes do not, unless they exchange samples. */
enum { GOSSIP_EVERY = 25, SORTED_EVERY = 2, MOVING_EVERY = 5 };

static bool is_sorted(const struct dlb_sharing *s)
{
	return s->shards && !strcmp(s->shards, "sorted");
}

bool dlb_sharing_averages(const struct dlb_sharing *s)
{
	return s->gossip > 0 || s->param_server >= 0 || s->sync_every > 0;
}

bool dlb_sharing_divides(const struct dlb_sharing *s)
{
	return s->zero > 0;
}

const char *dlb_sharing_undivided(const struct dlb_sharing *s)
{
	return dlb_sharing_averages(s)    ? "replicas that average their weights (gossip, sync_every, "
					    "param_server) have state of their own" :
	       dlb_sharing_tensors(s) > 1 ? "replicas that sum moments make them of their own gradients" :
					    NULL;
}

int dlb_sharing_check_shares(const struct dlb_sharing *s, struct dlb_error *err)
{
	const char *why = dlb_sharing_divides(s) ? dlb_sharing_undivided(s) : NULL;

	return why ? dlb_fail(err, "/plan/zero",
			      "the optimizer's state is not divided: %s; leave one of them out", why) :
		     0;
}

const char *dlb_sharing_name(const struct dlb_sharing *s)
{
	return s->param_server >= 0 ? "param-server" :
	       s->gossip > 0        ? "gossip" :
	       s->sync_every > 0    ? "average" :
				      s->allreduce;
}

static bool is_auto(const char *allreduce)
{
	return !strcmp(allreduce, DLB_ALLREDUCE_AUTO);
}

const struct dlb_allreduce *dlb_sharing_sum(const struct dlb_sharing *s, double bytes)
{
	const char *name = s->allreduce;
	if (!is_auto(name))
		return dlb_allreduce_find(name);
	name = dlb_allreduces[0]->name;
	for (int i = 0; i < s->n_by_size && (double)s->by_size[i].from_bytes <= bytes; i++)
		name = s->by_size[i].allreduce;
	return dlb_allreduce_find(name);
}

const char *dlb_sharing_sums(const struct dlb_sharing *s, char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "%s", s->allreduce);
	for (int i = 0; i < s->n_by_size && n < size; i++) {
		const struct dlb_by_size *row = &s->by_size[i];
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : ": ", row->allreduce);
		if (i && n < size)
			n += (size_t)snprintf(text + n, size - n, " from %lld bytes",
					      (long long)row->from_bytes);
	}
	return text;
}

int64_t dlb_sharing_every(const struct dlb_sharing *s)
{
	return s->sync_every > 0    ? s->sync_every :
	       s->param_server >= 0 ? 1 :
	       s->gossip <= 0       ? 0 :
	       is_sorted(s)         ? SORTED_EVERY :
				      GOSSIP_EVERY;
}

const char *dlb_sharing_advice(const struct dlb_sharing *s)
{
	if (!is_sorted(s) || dlb_sharing_every(s) <= (s->exchange_data > 0 ? MOVING_EVERY : SORTED_EVERY))
		return NULL;
	return "replicas whose samples are sorted by label learn less when they meet that seldom; take "
	       "--sync-every 2, or 5 with --exchange-data 0.25, or sums of gradients";
}

bool dlb_sharing_meets(const struct dlb_sharing *s, int64_t step)
{
	int64_t every = dlb_sharing_every(s);
	return every > 0 && (step + 1) % every == 0;
}

bool dlb_sharing_asks(const struct dlb_sharing_options *o)
{
	return o->gossip > 0 || o->sync_every > 0 || o->exchange_data > 0 ||
	       (o->param_server && strcmp(o->param_server, "none")) ||
	       (o->shards && strcmp(o->shards, "none")) || (o->feed && strcmp(o->feed, "local")) ||
	       (o->reduce && strncmp(o->reduce, "gradients", 9)) || o->max_state || o->zero > 0;
}

/* Names of --reduce. Moments by maximum (optim.h) would need another kind of sum. */
static const char *const reduce_kinds[] = { "gradients", "gradients:mean", "gradients:sum",
					    "moments",   "moments:mean",   "moments:sum" };
static const char *const max_kinds[] = { "merged", "local" };

/* The table's string equal to name; NULL: none. */
static const char *one_of(const char *name, const char *const *table, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(name, table[i]))
			return table[i];
	return NULL;
}

int dlb_sharing_tensors(const struct dlb_sharing *s)
{
	return s->reduce && !strncmp(s->reduce, "moments", 7) ? 2 : 1;
}

bool dlb_sharing_own_mean(const struct dlb_sharing *s)
{
	return dlb_sharing_averages(s) || dlb_sharing_tensors(s) > 1 ||
	       (s->reduce && !strcmp(s->reduce, "gradients:sum"));
}

static int apply_reduce(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err)
{
	if (o->reduce && !(s->reduce = one_of(o->reduce, reduce_kinds, DLB_LEN(reduce_kinds))))
		return dlb_fail(err, NULL,
				"--reduce wants gradients or moments, with :mean or :sum, not '%.40s'",
				o->reduce);
	if (o->max_state && !(s->max_state = one_of(o->max_state, max_kinds, DLB_LEN(max_kinds))))
		return dlb_fail(err, NULL, "--max-state wants merged or local, not '%.40s'", o->max_state);
	if (dlb_sharing_tensors(s) > 1 && strcmp(s->compress, "none"))
		return dlb_fail(err, NULL, "--compress is for sums of gradients, not of moments");
	if (dlb_sharing_tensors(s) > 1 && dlb_sharing_averages(s))
		return dlb_fail(
			err, NULL,
			"--reduce moments is for sums, not for --gossip, --param-server and --sync-every");
	return 0;
}

static const char *const shard_kinds[] = { "even", "sorted" };

/* The kind of shards of that name; NULL: none. */
static const char *shard_kind(const char *name)
{
	for (int i = 0; i < 2; i++)
		if (!strcmp(name, shard_kinds[i]))
			return shard_kinds[i];
	return NULL;
}

static int apply_server(const char *text, struct dlb_sharing *s, struct dlb_error *err)
{
	char *end;
	long node = strtol(text, &end, 10);
	if (!strcmp(text, "none"))
		node = -1;
	else if (end == text || *end || node < 0 || node > INT32_MAX)
		return dlb_fail(err, NULL, "--param-server wants a node or none, not '%.40s'", text);
	s->param_server = (int)node;
	return 0;
}

static int apply_samples(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err)
{
	if (o->shards && strcmp(o->shards, "none") && !shard_kind(o->shards))
		return dlb_fail(err, NULL, "--shards wants even, sorted or none, not '%.40s'", o->shards);
	if (o->feed && strcmp(o->feed, "local") && strcmp(o->feed, "host"))
		return dlb_fail(err, NULL, "--feed wants local or host, not '%.40s'", o->feed);
	if (o->exchange_data_given)
		s->exchange_data = o->exchange_data;
	if (o->shards)
		s->shards = shard_kind(o->shards);
	if (o->shards && !s->shards && o->exchange_data > 0)
		return dlb_fail(err, NULL,
				"--exchange-data needs shards, and --shards none says there are none");
	if (o->shards && !s->shards)
		s->exchange_data = 0;
	if (s->exchange_data > 0 && !s->shards)
		s->shards = shard_kinds[0];
	if (o->feed)
		s->feed_host = !strcmp(o->feed, "host");
	return 0;
}

/* Refuses options that would drain the pipeline after every step. */
static int check_async(const struct dlb_sharing *s, struct dlb_error *err)
{
	if (dlb_sharing_averages(s))
		return dlb_fail(err, "/plan/schedule",
				"async: replicas sum gradients; %s averages the weights that a step ended "
				"with, and several are "
				"under way; leave %s out, or take a synchronous schedule",
				dlb_sharing_name(s), dlb_sharing_name(s));
	if (s->sync)
		return dlb_fail(err, "/plan/sync",
				"async: a command after every step would empty the pipeline; leave sync out");
	return 0;
}

int dlb_sharing_check(const struct dlb_plan *p, struct dlb_error *err)
{
	const struct dlb_sharing *s = &p->sharing;
	int parts = 0, part = -1;
	if (p->n_replicas < 2)
		return 0;
	if (s->gossip > 0 && s->param_server >= 0)
		return dlb_fail(err, "/plan/gossip", "gossip and a parameter server exclude each other");
	if (dlb_sharing_check_shares(s, err))
		return -1;
	if (dlb_sharing_divides(s) && dlb_plan_is_async(p))
		return dlb_fail(
			err, "/plan/zero",
			"the optimizer's state is not divided under an asynchronous schedule, which updates "
			"weights while others read them; leave zero out, or take a synchronous schedule");
	if (dlb_sharing_averages(s) && s->sync)
		return dlb_fail(err, "/plan/sync", "sync is for sums of gradients; with %s there are none",
				dlb_sharing_name(s));
	if (dlb_plan_is_async(p) && check_async(s, err))
		return -1;
	if (dlb_sharing_averages(s) && s->sync_batchnorm)
		return dlb_fail(
			err, "/plan/sync_batchnorm",
			"statistics of all replicas are for replicas of one model; with %s they differ",
			dlb_sharing_name(s));
	if (s->param_server < 0)
		return 0;
	if (s->param_server >= p->n_nodes)
		return dlb_fail(err, "/plan/param_server", "there is no node %d; there are nodes 0 to %d",
				s->param_server, p->n_nodes - 1);
	for (int k = 0; k < p->n_nodes; k++)
		parts += p->replica[0][k] >= 0;
	part = dlb_plan_part_of(p, s->param_server);
	if (part >= 0 && parts > 1)
		return dlb_hint((dlb_fail(err, "/plan/param_server", "node %d holds only a part of the model",
					  s->param_server),
				 err),
				"name a node that has no part in the replicas");
	return 0;
}

static int no_such(struct dlb_error *err, const char *name)
{
	const char *names[16] = { DLB_ALLREDUCE_AUTO };
	int n = 1;
	char all[200] = "";
	for (int i = 0; dlb_allreduces[i] && n < 16; i++)
		names[n++] = dlb_allreduces[i]->name;
	for (int i = 0; i < n; i++)
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
			 i == 0     ? "" :
			 i == n - 1 ? " and " :
				      ", ",
			 names[i]);
	return dlb_fail(err, NULL, "no way to sum '%s'; there are %s", name, all);
}

/* Sets the algorithm if the name is known, and drops choices by size. */
static int take_allreduce(const char *name, struct dlb_sharing *s)
{
	const struct dlb_allreduce *how = dlb_allreduce_find(name);
	if (!how && !is_auto(name))
		return -1;
	s->allreduce = how ? how->name : DLB_ALLREDUCE_AUTO;
	s->n_by_size = 0;
	return 0;
}

/* Sets the compression if the text is valid. */
static int take_compress(struct dlb_sharing *s, const char *text, struct dlb_error *err)
{
	struct dlb_compress_choice c;
	memset(s->compress_of, 0, sizeof s->compress_of);
	if (strcmp(text, DLB_COMPRESS_AUTO) && dlb_compress_parse(text, &c, err))
		return -1;
	if (strlen(text) >= sizeof s->compress)
		return dlb_fail(err, NULL, "compression '%.60s...' is too long", text);
	strcpy(s->compress, text);
	return 0;
}

int dlb_sharing_apply(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err)
{
	if (o->sync && o->async)
		return dlb_fail(err, NULL, "--sync and --async-allreduce exclude each other");
	if (o->allreduce && take_allreduce(o->allreduce, s))
		return no_such(err, o->allreduce);
	if (o->compress && take_compress(s, o->compress, err))
		return -1;
	s->sync = o->sync || (s->sync && !o->async);
	s->sync_batchnorm |= o->sync_batchnorm;
	if (dlb_sharing_sum(s, 0)->external && strcmp(s->compress, "none"))
		return dlb_fail(err, NULL, "--allreduce %s sums by itself: it cannot compress", s->allreduce);
	if (o->gossip_given)
		s->gossip = o->gossip;
	if (o->sync_every_given)
		s->sync_every = o->sync_every;
	if (o->param_server && apply_server(o->param_server, s, err))
		return -1;
	if (s->gossip > 0 && s->param_server >= 0)
		return dlb_fail(err, NULL, "--gossip and --param-server exclude each other");
	if (s->sync && dlb_sharing_averages(s))
		return dlb_fail(
			err, NULL,
			"--sync is for sums of gradients, not for --gossip, --param-server and --sync-every");
	if (dlb_sharing_averages(s) && strcmp(s->compress, "none"))
		return dlb_fail(err, NULL,
				"--compress is for sums of gradients, not for --gossip, --param-server and "
				"--sync-every");
	if (s->sync_batchnorm && dlb_sharing_averages(s))
		return dlb_fail(err, NULL,
				"--sync-batchnorm is for replicas of one model, not with --gossip, "
				"--param-server and --sync-every");
	if (apply_reduce(o, s, err) || apply_samples(o, s, err))
		return -1;
	if (o->zero_given)
		s->zero = (int)o->zero;
	if (dlb_sharing_divides(s) && dlb_sharing_undivided(s))
		return dlb_fail(err, NULL,
				"--zero does not divide the optimizer's state: %s; leave one of them out",
				dlb_sharing_undivided(s));
	return 0;
}

/* Writes a member unless it has its default. */
static void put(json_t *plan, const char *name, bool said, json_t *value)
{
	if (said)
		json_object_set(plan, name, value);
	else
		json_object_del(plan, name);
	json_decref(value);
}

void dlb_sharing_write(const struct dlb_sharing *s, json_t *plan)
{
	dlb_set_str(plan, "allreduce", s->allreduce);
	json_t *by_size = json_array();
	for (int i = 0; i < s->n_by_size; i++)
		json_array_append_new(by_size,
				      json_pack("{sI ss}", "from_bytes", (json_int_t)s->by_size[i].from_bytes,
						"allreduce", s->by_size[i].allreduce));
	put(plan, "allreduce_by_size", s->n_by_size > 0, by_size);
	dlb_set_bool(plan, "sync", s->sync);
	dlb_set_bool(plan, "sync_batchnorm", s->sync_batchnorm);
	dlb_sharing_write_compression(s, plan);
	dlb_set_str(plan, "split", s->by_power ? "power" : "even");
	put(plan, "split_given", s->split_given, json_true());
	put(plan, "reduce", s->reduce != NULL, json_string(s->reduce ? s->reduce : ""));
	put(plan, "max_state", s->max_state != NULL, json_string(s->max_state ? s->max_state : ""));
	put(plan, "gossip", s->gossip > 0, json_real(s->gossip));
	put(plan, "sync_every", s->sync_every > 0, json_integer(s->sync_every));
	put(plan, "param_server", s->param_server >= 0, json_integer(s->param_server));
	put(plan, "shards", s->shards != NULL, json_string(s->shards ? s->shards : ""));
	put(plan, "exchange_data", s->exchange_data > 0, json_real(s->exchange_data));
	put(plan, "feed", s->feed_host, json_string("host"));
	put(plan, "zero", s->zero > 0, json_integer(s->zero));
}

static int read_reduce(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	const char *reduce = NULL, *state = NULL;
	struct dlb_ref at;
	if (dlb_get_str(plan, "reduce", DLB_OPT, &reduce, err) ||
	    dlb_get_str(plan, "max_state", DLB_OPT, &state, err))
		return -1;
	at = dlb_ref_at(plan, "reduce");
	if (reduce && !(s->reduce = one_of(reduce, reduce_kinds, DLB_LEN(reduce_kinds))))
		return dlb_ref_fail(&at, err,
				    "gradients or moments are expected, with :mean or :sum, not '%.40s'",
				    reduce);
	if (dlb_sharing_tensors(s) > 1 && (strcmp(s->compress, "none") || dlb_sharing_averages(s)))
		return dlb_ref_fail(
			&at, err, "moments are neither compressed nor exchanged where weights are averaged");
	at = dlb_ref_at(plan, "max_state");
	if (state && !(s->max_state = one_of(state, max_kinds, DLB_LEN(max_kinds))))
		return dlb_ref_fail(&at, err, "'merged' or 'local' is expected, not '%.40s'", state);
	return 0;
}

static int read_samples(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	const char *shards = NULL, *feed = NULL;
	struct dlb_ref at;
	if (dlb_get_str(plan, "shards", DLB_OPT, &shards, err) ||
	    dlb_get_str(plan, "feed", DLB_OPT, &feed, err) ||
	    dlb_get_real(plan, "exchange_data", DLB_OPT, 0, 1, &s->exchange_data, err))
		return -1;
	at = dlb_ref_at(plan, "shards");
	if (shards && !(s->shards = shard_kind(shards)))
		return dlb_ref_fail(&at, err, "'even' or 'sorted' is expected, not '%.40s'", shards);
	at = dlb_ref_at(plan, "feed");
	if (feed && strcmp(feed, "local") && strcmp(feed, "host"))
		return dlb_ref_fail(&at, err, "'local' or 'host' is expected, not '%.40s'", feed);
	s->feed_host = feed && !strcmp(feed, "host");
	if (s->exchange_data > 0 && !s->shards)
		s->shards = shard_kinds[0];
	return 0;
}

static int read_by_size(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	static const char *const known[] = { "from_bytes", "allreduce", NULL };
	struct dlb_ref list = { .v = NULL };
	int n = 0;
	if (dlb_get_array(plan, "allreduce_by_size", DLB_OPT, &list, &n, err))
		return -1;
	if (n && !is_auto(s->allreduce))
		return dlb_ref_fail(&list, err,
				    "sums go by '%s', whatever their size; '" DLB_ALLREDUCE_AUTO
				    "' chooses by size",
				    s->allreduce);
	if (n > DLB_MOST_SIZES)
		return dlb_ref_fail(&list, err, "%d ranges of sizes; there are %d at most", n,
				    DLB_MOST_SIZES);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&list, i);
		struct dlb_by_size *to = &s->by_size[i];
		const char *how = NULL;
		if (dlb_ref_known(&row, known, err) ||
		    dlb_get_int(&row, "from_bytes", DLB_NEED, i ? s->by_size[i - 1].from_bytes + 1 : 0,
				i ? INT64_C(1) << 60 : 0, &to->from_bytes, err) ||
		    dlb_get_str(&row, "allreduce", DLB_NEED, &how, err))
			return -1;
		if (!dlb_allreduce_find(how) || dlb_allreduce_find(how)->external)
			return dlb_ref_fail(&row, err, "no way to sum '%s'", how);
		to->allreduce = dlb_allreduce_find(how)->name;
	}
	s->n_by_size = n;
	return 0;
}

int dlb_sharing_read(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err)
{
	int64_t server = -1, zero = 0;
	const char *how = NULL, *split = NULL;
	if (dlb_get_str(plan, "allreduce", DLB_OPT, &how, err) ||
	    dlb_get_bool(plan, "sync", DLB_OPT, &s->sync, err) ||
	    dlb_get_bool(plan, "sync_batchnorm", DLB_OPT, &s->sync_batchnorm, err) ||
	    dlb_get_real(plan, "gossip", DLB_OPT, 0, 1, &s->gossip, err) ||
	    dlb_get_int(plan, "sync_every", DLB_OPT, 0, 1000000000, &s->sync_every, err) ||
	    dlb_get_int(plan, "param_server", DLB_OPT, 0, INT32_MAX, &server, err) ||
	    dlb_get_int(plan, "zero", DLB_OPT, 0, DLB_MOST_ZERO, &zero, err) ||
	    dlb_get_str(plan, "split", DLB_OPT, &split, err) ||
	    dlb_get_bool(plan, "split_given", DLB_OPT, &s->split_given, err) || read_samples(plan, s, err))
		return -1;
	s->param_server = (int)server;
	s->zero = (int)zero;
	if (split && strcmp(split, "even") && strcmp(split, "power")) {
		struct dlb_ref at = dlb_ref_at(plan, "split");
		return dlb_ref_fail(&at, err, "'even' or 'power' is expected, not '%s'", split);
	}
	if (split)
		s->by_power = !strcmp(split, "power");
	if (how && take_allreduce(how, s)) {
		struct dlb_ref at = dlb_ref_at(plan, "allreduce");
		return dlb_ref_fail(&at, err, "no way to sum '%s'", how);
	}
	if (read_by_size(plan, s, err))
		return -1;
	if (dlb_sharing_read_compression(plan, s, err))
		return -1;
	return read_reduce(plan, s, err);
}

int dlb_sharing_edit(struct dlb_doc *doc, const struct dlb_sharing_options *o, const char **advice,
		     struct dlb_error *err)
{
	struct dlb_ref plan = dlb_ref_root(doc, "plan");
	struct dlb_sharing s;
	dlb_sharing_init(&s);
	*advice = NULL;
	if (!json_is_object(plan.v))
		return 0;				/* callers that need a plan report it */
	if (dlb_sharing_read(&plan, &s, err) || dlb_sharing_apply(o, &s, err))
		return -1;
	if (json_object_get(plan.v, "replicas")) {
		dlb_sharing_write(&s, plan.v);
		*advice = dlb_sharing_advice(&s);
	} else if (dlb_sharing_asks(o))
		return dlb_hint((dlb_fail(err, "/plan", "there are no replicas that could share anything"),
				 err),
				"dlb-place --replicas makes them");
	return 0;
}
