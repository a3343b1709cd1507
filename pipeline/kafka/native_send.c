#include "native.h"

#include <stdlib.h>
#include <string.h>
#include <pthread.h>

extern rp_live rp_alive;

rp_unit *rp_unit_new(void) {
	rp_unit *u = calloc(1, sizeof *u);
	if (u)
		__atomic_add_fetch(&rp_alive.units, 1, __ATOMIC_RELAXED);
	return u;
}

void rp_unit_free(rp_unit *u) {
	free(u->msgs);
	free(u->headers);
	free(u->bytes);
	free(u);
	__atomic_sub_fetch(&rp_alive.units, 1, __ATOMIC_RELEASE);
}

// rp_unit_room makes room for a Sending; what was in the unit is gone. 0: there is no memory for it.
int rp_unit_room(rp_unit *u, int msgs, int headers, int64_t bytes) {
	if (msgs > u->capmsgs) {
		free(u->msgs);
		u->msgs = calloc(msgs, sizeof *u->msgs);
		u->capmsgs = u->msgs ? msgs : 0;
	}
	if (headers > u->capheaders) {
		free(u->headers);
		u->headers = calloc(headers, sizeof *u->headers);
		u->capheaders = u->headers ? headers : 0;
	}
	if (bytes > u->capbytes) {
		free(u->bytes);
		u->bytes = malloc(bytes);
		u->capbytes = u->bytes ? bytes : 0;
	}
	return msgs <= u->capmsgs && headers <= u->capheaders && bytes <= u->capbytes;
}

// headers_of builds the library's list; NULL: no memory.
static rd_kafka_headers_t *headers_of(const rp_unit *u, const rp_msg *m) {
	rd_kafka_headers_t *hs = rd_kafka_headers_new(m->headers);
	for (int32_t i = m->header; hs && i < m->header + m->headers; i++) {
		const rp_header *h = &u->headers[i];
		int null = h->vlen < 0;
		if (rd_kafka_header_add(hs, h->name, h->nlen, null ? NULL : h->val, null ? 0 : h->vlen)) {
			rd_kafka_headers_destroy(hs);
			return NULL;
		}
	}
	return hs;
}

// rp_send hands the messages from..to-1 of u to the library, which keeps pointing at their values until it reports them. It
// returns the first that was not taken, with the reason in f; to: all were.
int rp_send(rp_client *c, rp_unit *u, int from, int to, rp_fault *f) {
	rd_kafka_vu_t v[8];
	memset(v, 0, sizeof v);
	v[0].vtype = RP_V_RKT;
	v[1].vtype = RP_V_PARTITION;
	v[2].vtype = RP_V_VALUE;
	v[3].vtype = RP_V_KEY;
	v[4].vtype = RP_V_OPAQUE;
	v[5].vtype = RP_V_MSGFLAGS; // 0: neither copy the value nor free it
	v[6].vtype = RP_V_TIMESTAMP;
	v[7].vtype = RP_V_HEADERS;
	f->code = 0;
	for (int i = from; i < to; i++) {
		rp_msg *m = &u->msgs[i];
		int n = 7;
		if (!m->topic) {
			rp_fault_code(f, RP_ERR_INVALID_ARG);
			return i;
		}
		v[0].u.rkt = m->topic;
		v[1].u.i32 = m->partition;
		v[2].u.mem.ptr = m->vlen < 0 ? NULL : (void *)m->val;
		v[2].u.mem.size = m->vlen < 0 ? 0 : m->vlen;
		v[3].u.mem.ptr = m->klen < 0 ? NULL : (void *)m->key;
		v[3].u.mem.size = m->klen < 0 ? 0 : m->klen;
		v[4].u.ptr = m;
		v[6].u.i64 = m->at;
		if (m->headers > 0) {
			if (!(v[7].u.headers = headers_of(u, m))) {
				rp_fault_code(f, RP_ERR_RESOURCES);
				return i;
			}
			n = 8;
		}
		m->code = RP_UNANSWERED;
		__atomic_add_fetch(&c->aloft, 1, __ATOMIC_RELAXED); // before: the report may be faster
		rd_kafka_error_t *e = rd_kafka_produceva(c->rk, v, n);
		if (__builtin_expect(e != NULL, 0)) {
			__atomic_sub_fetch(&c->aloft, 1, __ATOMIC_RELAXED);
			if (n == 8)
				rd_kafka_headers_destroy(v[7].u.headers); // still ours
			rp_fault_of(f, e);
			return i;
		}
	}
	return to;
}

// rp_serve waits for reports and errors and records them. It tells whether anything waits for Go.
int rp_serve(rp_client *c, int timeout_ms) {
	rd_kafka_poll(c->rk, timeout_ms);
	return __atomic_exchange_n(&c->told, 0, __ATOMIC_ACQ_REL);
}

// rp_take_reports takes the units that are complete and the messages that failed, oldest first.
void rp_take_reports(rp_client *c, rp_unit **done, rp_msg **failed) {
	pthread_mutex_lock(c->lock);
	*done = c->done;
	*failed = c->failed;
	c->done = NULL;
	c->done_end = &c->done;
	c->failed = NULL;
	c->failed_end = &c->failed;
	pthread_mutex_unlock(c->lock);
}

// rp_tx is a step of a transaction: 'i'nit, 'b'egin, 'c'ommit, 'a'bort.
void rp_tx(rp_client *c, int what, int timeout_ms, rp_fault *f) {
	switch (what) {
	case 'i':
		rp_fault_of(f, rd_kafka_init_transactions(c->rk, timeout_ms));
		break;
	case 'b':
		rp_fault_of(f, rd_kafka_begin_transaction(c->rk));
		break;
	case 'c':
		rp_fault_of(f, rd_kafka_commit_transaction(c->rk, timeout_ms));
		break;
	default:
		rp_fault_of(f, rd_kafka_abort_transaction(c->rk, timeout_ms));
	}
}

// rp_tx_offsets adds a group's offsets to the open transaction.
void rp_tx_offsets(rp_client *c, const rd_kafka_topic_partition_list_t *l, const void *group, size_t len, int timeout_ms,
	rp_fault *f) {
	rd_kafka_consumer_group_metadata_t *g = NULL;
	rp_fault_of(f, rd_kafka_consumer_group_metadata_read(&g, group, len));
	if (f->code)
		return;
	rp_fault_of(f, rd_kafka_send_offsets_to_transaction(c->rk, l, g, timeout_ms));
	rd_kafka_consumer_group_metadata_destroy(g);
}
