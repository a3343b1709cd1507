#include "native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(rd_kafka_message_t) == 72, "rd_kafka_message_t");
_Static_assert(sizeof(rd_kafka_vu_t) == 72, "rd_kafka_vu_t");
_Static_assert(sizeof(rd_kafka_topic_partition_t) == 64, "rd_kafka_topic_partition_t");
_Static_assert(sizeof(rd_kafka_topic_partition_list_t) == 16, "rd_kafka_topic_partition_list_t");

rp_live rp_alive;

void rp_counts(rp_live *out) {
	out->clients = __atomic_load_n(&rp_alive.clients, __ATOMIC_ACQUIRE);
	out->batches = __atomic_load_n(&rp_alive.batches, __ATOMIC_ACQUIRE);
	out->lent = __atomic_load_n(&rp_alive.lent, __ATOMIC_ACQUIRE);
	out->units = __atomic_load_n(&rp_alive.units, __ATOMIC_ACQUIRE);
}

// must is for memory of a small fixed size: without it nothing can go on, here as inside the library.
static void *must(void *p) {
	if (!p) {
		fputs("reprieve: out of memory\n", stderr);
		abort();
	}
	return p;
}

// rp_check finds out whether the library is the one that native.h describes.
int rp_check(char *why, size_t len) {
	int v = rd_kafka_version();
	if (v >> 16 != 0x020b) {
		snprintf(why, len, "librdkafka %d.%d.%d is linked, the binding is for 2.11", v >> 24 & 255, v >> 16 & 255, v >> 8 & 255);
		return 0;
	}
	rd_kafka_topic_partition_list_t *l = rd_kafka_topic_partition_list_new(1);
	rp_list_add(l, "one", 1, 11, NULL, 0);
	rp_list_add(l, "two", 2, 22, "meta", 4);
	int same = l->cnt == 2 && l->elems[0].partition == 1 && l->elems[0].offset == 11 && !strcmp(l->elems[0].topic, "one") &&
		l->elems[1].partition == 2 && l->elems[1].offset == 22 && !strcmp(l->elems[1].topic, "two") &&
		l->elems[1].metadata_size == 4 && l->elems[1].err == 0;
	rd_kafka_topic_partition_list_destroy(l);
	if (!same)
		snprintf(why, len, "a partition list of the linked librdkafka has another layout");
	return same;
}

static void tell(rp_client *c) { __atomic_store_n(&c->told, 1, __ATOMIC_RELEASE); }

// note records what the library said. The newest are kept.
static void note(rp_client *c, rp_ring *r, int level, int code, int fatal, const char *about, const char *text) {
	pthread_mutex_lock(c->lock);
	if (r->to - r->from == RP_NOTES) {
		r->from++;
		r->lost++;
	}
	rp_note *n = &r->notes[r->to++ & (RP_NOTES - 1)];
	n->level = level, n->code = code, n->fatal = fatal;
	snprintf(n->about, sizeof n->about, "%s", about ? about : "");
	snprintf(n->text, sizeof n->text, "%s", text ? text : "");
	tell(c);
	pthread_mutex_unlock(c->lock);
}

// rp_take_note takes the oldest line of the log, or the oldest error; 0: there is none.
int rp_take_note(rp_client *c, int error, rp_note *out) {
	rp_ring *r = error ? &c->errors : &c->logs;
	pthread_mutex_lock(c->lock);
	int have = r->from != r->to;
	if (have) {
		*out = r->notes[r->from++ & (RP_NOTES - 1)];
		out->lost = r->lost;
		r->lost = 0;
	}
	pthread_mutex_unlock(c->lock);
	return have;
}

static void log_cb(const rd_kafka_t *rk, int level, const char *tag, const char *text) {
	rp_client *c = rd_kafka_opaque(rk);
	if (c)
		note(c, &c->logs, level, 0, 0, tag, text);
}

// rp_error records an error that is not an answer to a call. A fatal one hides its own code.
void rp_error(rp_client *c, rd_kafka_t *rk, int code, const char *topic, const char *text) {
	char why[512];
	int fatal = code == RP_ERR_FATAL;
	if (fatal) {
		int own = rd_kafka_fatal_error(rk, why, sizeof why);
		if (own)
			code = own, text = why;
	}
	note(c, &c->errors, 0, code, fatal, topic, text);
}

static void error_cb(rd_kafka_t *rk, int code, const char *text, void *opaque) { rp_error(opaque, rk, code, NULL, text); }

// refuse answers a rebalance with "none": nobody else would any more.
static void refuse(rd_kafka_t *rk, int assign, int cooperative, rd_kafka_topic_partition_list_t *l) {
	rd_kafka_error_t *e = NULL;
	if (!cooperative) {
		rd_kafka_assign(rk, NULL);
	} else if (assign) {
		rd_kafka_topic_partition_list_t *none = rd_kafka_topic_partition_list_new(0);
		e = rd_kafka_incremental_assign(rk, none);
		rd_kafka_topic_partition_list_destroy(none);
	} else {
		e = rd_kafka_incremental_unassign(rk, l);
	}
	if (e)
		rd_kafka_error_destroy(e);
}

// rebalance_cb runs inside of a fetch. The owner has to see the change before it is answered, so it is only recorded.
static void rebalance_cb(rd_kafka_t *rk, int code, rd_kafka_topic_partition_list_t *l, void *opaque) {
	rp_client *c = opaque;
	if (c->closing == RP_LEAVES) {
		c->asked = 1;
		return;
	}
	const char *protocol = rd_kafka_rebalance_protocol(rk);
	int cooperative = protocol && !strcmp(protocol, "COOPERATIVE");
	if (c->closing == RP_REFUSES) {
		refuse(rk, code == RP_ERR_ASSIGN, cooperative, l);
		return;
	}
	rp_change *ch = must(calloc(1, sizeof *ch));
	ch->assign = code == RP_ERR_ASSIGN;
	ch->lost = !ch->assign && rd_kafka_assignment_lost(rk);
	ch->cooperative = cooperative;
	ch->list = rd_kafka_topic_partition_list_copy(l);
	pthread_mutex_lock(c->lock);
	*c->last = ch;
	c->last = &ch->next;
	tell(c);
	pthread_mutex_unlock(c->lock);
}

// rp_take_change takes the oldest change that Go has not seen; NULL: there is none.
rp_change *rp_take_change(rp_client *c) {
	pthread_mutex_lock(c->lock);
	rp_change *ch = c->changes;
	if (ch) {
		c->changes = ch->next;
		if (!c->changes)
			c->last = &c->changes;
		ch->next = NULL;
	}
	pthread_mutex_unlock(c->lock);
	return ch;
}

void rp_change_free(rp_change *ch) {
	rd_kafka_topic_partition_list_destroy(ch->list);
	free(ch);
}

// report_cb takes the answer for one message: a good one costs a store and two atomic steps.
static void report_cb(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
	rp_client *c = opaque;
	rp_msg *s = m->_private;
	s->code = m->err;
	if (m->err) { // it may be sent again as it was: nothing else is written
		s->next = NULL;
		__atomic_sub_fetch(&c->aloft, 1, __ATOMIC_RELEASE);
		pthread_mutex_lock(c->lock);
		*c->failed_end = s;
		c->failed_end = &s->next;
		tell(c);
		pthread_mutex_unlock(c->lock);
		return;
	}
	s->partition = m->partition;
	s->at = m->offset;
	rp_unit *u = s->unit;
	__atomic_sub_fetch(&c->aloft, 1, __ATOMIC_RELEASE);
	if (__atomic_sub_fetch(&u->open, 1, __ATOMIC_ACQ_REL) == 0) {
		u->next = NULL;
		pthread_mutex_lock(c->lock);
		*c->done_end = u;
		c->done_end = &u->next;
		tell(c);
		pthread_mutex_unlock(c->lock);
	}
}

// rp_open makes a client of n/2 settings, name and value by turns. NULL: f says why not.
rp_client *rp_open(int producer, char **settings, int n, rp_fault *f) {
	memset(f, 0, sizeof *f);
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	for (int i = 0; i + 1 < n; i += 2) {
		if (rd_kafka_conf_set(conf, settings[i], settings[i + 1], f->text, sizeof f->text)) {
			f->code = RP_ERR_INVALID_ARG;
			rd_kafka_conf_destroy(conf);
			return NULL;
		}
	}
	rp_client *c = must(calloc(1, sizeof *c));
	c->lock = must(malloc(sizeof(pthread_mutex_t)));
	pthread_mutex_init(c->lock, NULL);
	c->last = &c->changes;
	c->done_end = &c->done;
	c->failed_end = &c->failed;
	__atomic_add_fetch(&rp_alive.clients, 1, __ATOMIC_RELAXED);
	rd_kafka_conf_set_opaque(conf, c);
	rd_kafka_conf_set_log_cb(conf, log_cb);
	rd_kafka_conf_set_error_cb(conf, error_cb);
	if (producer)
		rd_kafka_conf_set_dr_msg_cb(conf, report_cb);
	else
		rd_kafka_conf_set_rebalance_cb(conf, rebalance_cb);
	c->rk = rd_kafka_new(producer ? 0 : 1, conf, f->text, sizeof f->text);
	if (!c->rk) {
		f->code = RP_ERR_INVALID_ARG;
		rd_kafka_conf_destroy(conf);
		rp_free(c);
		return NULL;
	}
	if (producer) {
		c->q = rd_kafka_queue_get_main(c->rk);
	} else {
		rd_kafka_poll_set_consumer(c->rk); // everything comes through the one queue that is fetched from
		c->q = rd_kafka_queue_get_consumer(c->rk);
	}
	return c;
}

// rp_free ends the client and its threads. Nothing that it lent may be used any more.
void rp_free(rp_client *c) {
	for (int i = 0; i < c->ntopics; i++)
		rd_kafka_topic_destroy(c->topics[i]);
	if (c->q)
		rd_kafka_queue_destroy(c->q);
	if (c->rk)
		rd_kafka_destroy_flags(c->rk, RP_DESTROY_QUIETLY);
	for (rp_change *ch; (ch = rp_take_change(c));)
		rp_change_free(ch);
	pthread_mutex_destroy(c->lock);
	free(c->lock);
	free(c->topics);
	free(c);
	__atomic_sub_fetch(&rp_alive.clients, 1, __ATOMIC_RELEASE);
}

// rp_topic is a reference to a topic that stays valid, and unique as a key, until rp_free. NULL: no topic can have that name.
rd_kafka_topic_t *rp_topic(rp_client *c, const char *name) {
	rd_kafka_topic_t *t = rd_kafka_topic_new(c->rk, name, NULL);
	if (!t)
		return NULL;
	for (int i = 0; i < c->ntopics; i++) {
		if (c->topics[i] == t) {
			rd_kafka_topic_destroy(t);
			return t;
		}
	}
	if (c->ntopics == c->captopics) {
		c->captopics = c->captopics ? 2 * c->captopics : 16;
		c->topics = must(realloc(c->topics, c->captopics * sizeof *c->topics));
	}
	return c->topics[c->ntopics++] = t;
}

// rp_list_add adds a partition; meta is copied, NULL is none.
void rp_list_add(rd_kafka_topic_partition_list_t *l, const char *topic, int32_t partition, int64_t offset, const char *meta,
	size_t len) {
	rd_kafka_topic_partition_t *e = rd_kafka_topic_partition_list_add(l, topic, partition);
	e->offset = offset;
	if (meta && len > 0) {
		e->metadata = must(malloc(len));
		memcpy(e->metadata, meta, len);
		e->metadata_size = len;
	}
}

void rp_fault_code(rp_fault *f, int code) {
	memset(f, 0, offsetof(rp_fault, text) + 1);
	f->code = code;
	if (code)
		snprintf(f->text, sizeof f->text, "%s", rd_kafka_err2str(code));
}

// rp_fault_of takes the error over; NULL is success.
void rp_fault_of(rp_fault *f, rd_kafka_error_t *e) {
	memset(f, 0, offsetof(rp_fault, text) + 1);
	if (!e)
		return;
	f->code = rd_kafka_error_code(e);
	f->fatal = rd_kafka_error_is_fatal(e);
	f->retriable = rd_kafka_error_is_retriable(e);
	f->abort = rd_kafka_error_txn_requires_abort(e);
	snprintf(f->text, sizeof f->text, "%s", rd_kafka_error_string(e));
	rd_kafka_error_destroy(e);
}
