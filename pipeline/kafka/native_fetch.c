#include "native.h"

#include <stdlib.h>
#include <string.h>

extern rp_live rp_alive;
void rp_error(rp_client *c, rd_kafka_t *rk, int code, const char *topic, const char *text);

rp_batch *rp_batch_new(int cap) {
	rp_batch *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->cap = cap;
	b->lent = calloc(cap, sizeof *b->lent);
	b->records = calloc(cap, sizeof *b->records);
	b->runs = calloc(cap, sizeof *b->runs);
	__atomic_add_fetch(&rp_alive.batches, 1, __ATOMIC_RELAXED);
	if (!b->lent || !b->records || !b->runs) {
		rp_batch_free(b);
		return NULL;
	}
	return b;
}

// rp_release gives records back to the library: their bytes are gone.
void rp_release(rp_batch *b, int from, int n) {
	int given = 0;
	for (int i = from; i < from + n; i++) {
		if (b->lent[i]) {
			rd_kafka_message_destroy(b->lent[i]);
			b->lent[i] = NULL;
			given++;
		}
	}
	__atomic_sub_fetch(&rp_alive.lent, given, __ATOMIC_RELEASE);
}

void rp_batch_free(rp_batch *b) {
	if (b->lent)
		rp_release(b, 0, b->n);
	free(b->lent);
	free(b->records);
	free(b->runs);
	free(b->headers);
	free(b);
	__atomic_sub_fetch(&rp_alive.batches, 1, __ATOMIC_RELEASE);
}

// headers_of describes the headers of a record. 0: there is no memory for them.
static int headers_of(rp_batch *b, rp_record *r, const rd_kafka_message_t *m) {
	rd_kafka_headers_t *hs;
	if (rd_kafka_message_headers(m, &hs))
		return 1; // none
	size_t n = rd_kafka_header_cnt(hs);
	if (n > (size_t)(INT32_MAX / 4 - b->nheaders))
		return 0;
	if (b->nheaders + (int32_t)n > b->capheaders) {
		int32_t cap = 2 * (b->nheaders + (int32_t)n) + 64;
		rp_header *more = realloc(b->headers, cap * sizeof *more);
		if (!more)
			return 0;
		b->headers = more;
		b->capheaders = cap;
	}
	for (size_t i = 0; i < n; i++) {
		rp_header *h = &b->headers[b->nheaders + i];
		const void *val = NULL;
		size_t len = 0;
		h->name = "";
		rd_kafka_header_get_all(hs, i, &h->name, &val, &len);
		h->nlen = (int32_t)strlen(h->name);
		h->val = val;
		h->vlen = val ? (int32_t)len : -1;
	}
	r->headers = (int32_t)n;
	b->nheaders += (int32_t)n;
	return 1;
}

// rp_fetch waits for a first record, then takes what else lies ready, and describes all. Errors that came as messages are
// recorded. It returns the number of records, or a negative error code: then nothing was taken.
int rp_fetch(rp_client *c, rp_batch *b, int timeout_ms) {
	b->n = b->nruns = b->nheaders = 0;
	// asked for more than one, the library waits until it has them all
	ssize_t got = rd_kafka_consume_batch_queue(c->q, timeout_ms, b->lent, 1);
	if (got == 1 && b->cap > 1) {
		ssize_t more = rd_kafka_consume_batch_queue(c->q, 0, b->lent + 1, b->cap - 1);
		if (more > 0)
			got += more;
	}
	if (got <= 0)
		return 0;
	rp_run *run = NULL;
	int n = 0;
	for (ssize_t i = 0; i < got; i++) {
		rd_kafka_message_t *m = b->lent[i];
		if (i + 4 < got)
			__builtin_prefetch(b->lent[i + 4]);
		b->lent[i] = NULL;
		if (m->err || !m->rkt) {
			rp_error(c, c->rk, m->err, m->rkt ? rd_kafka_topic_name(m->rkt) : NULL, m->payload);
			rd_kafka_message_destroy(m);
			continue;
		}
		rp_record *r = &b->records[n];
		r->key = m->key;
		r->klen = m->key ? (int32_t)m->key_len : -1;
		r->val = m->payload;
		r->vlen = m->payload ? (int32_t)m->len : -1;
		r->offset = m->offset;
		r->time = rd_kafka_message_timestamp(m, &r->time_type);
		r->header = b->nheaders;
		r->headers = 0;
		b->lent[n++] = m;
		if (!headers_of(b, r, m)) {
			b->n = n;
			for (ssize_t k = i + 1; k < got; k++)
				rd_kafka_message_destroy(b->lent[k]);
			__atomic_add_fetch(&rp_alive.lent, n, __ATOMIC_RELAXED);
			rp_release(b, 0, n);
			b->n = 0;
			return RP_ERR_RESOURCES;
		}
		if (!run || run->topic != m->rkt || run->partition != m->partition) {
			run = &b->runs[b->nruns++];
			run->topic = m->rkt;
			run->partition = m->partition;
			run->from = n - 1;
			run->n = 0;
		}
		run->n++;
	}
	b->n = n;
	__atomic_add_fetch(&rp_alive.lent, n, __ATOMIC_RELAXED);
	return n;
}

// rp_assign answers a change of the assignment: how 1 takes l incrementally, -1 gives it back incrementally, 0 sets it (NULL:
// nothing).
void rp_assign(rp_client *c, const rd_kafka_topic_partition_list_t *l, int how, rp_fault *f) {
	if (how == 0)
		rp_fault_code(f, rd_kafka_assign(c->rk, l));
	else
		rp_fault_of(f, how > 0 ? rd_kafka_incremental_assign(c->rk, l) : rd_kafka_incremental_unassign(c->rk, l));
}

// rp_commit commits l and waits for the broker's answer. topic is filled when one partition of it was refused.
void rp_commit(rp_client *c, const rd_kafka_topic_partition_list_t *l, rp_fault *f, char *topic, size_t len) {
	rd_kafka_queue_t *q = rd_kafka_queue_new(c->rk);
	int code = rd_kafka_commit_queue(c->rk, l, q, NULL, NULL);
	rp_fault_code(f, code);
	if (!code) {
		rd_kafka_event_t *e = rd_kafka_queue_poll(q, -1);
		if (e) {
			rp_fault_code(f, rd_kafka_event_error(e));
			rd_kafka_topic_partition_list_t *out = rd_kafka_event_topic_partition_list(e);
			for (int i = 0; out && i < out->cnt; i++) {
				if (out->elems[i].err) {
					rp_fault_code(f, out->elems[i].err);
					strncpy(topic, out->elems[i].topic, len - 1);
					topic[len - 1] = 0;
					break;
				}
			}
			rd_kafka_event_destroy(e);
		}
	}
	rd_kafka_queue_destroy(q);
}

// rp_group writes the membership as bytes; rd_kafka_mem_free frees them. NULL: not a member.
void rp_group(rp_client *c, void **out, size_t *len, rp_fault *f) {
	*out = NULL;
	*len = 0;
	memset(f, 0, sizeof *f);
	rd_kafka_consumer_group_metadata_t *g = rd_kafka_consumer_group_metadata(c->rk);
	if (!g)
		return;
	rp_fault_of(f, rd_kafka_consumer_group_metadata_write(g, out, len));
	rd_kafka_consumer_group_metadata_destroy(g);
}
