#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Leaving a group. A call that changes the assignment waits without limit for the library's own thread, and that thread drops
// such calls unanswered once the group is left (librdkafka 2.11, rd_kafka_cgrp_op_serve). A cooperative member that leaves
// within a rebalance is asked twice, and the answer to the first question may end the membership: so the second must not be
// answered, and nothing may be asked of the group here.

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// give_back serves the queue and frees what it gives, thousands of records perhaps. It returns whether the library said that
// it had begun to leave.
static int give_back(rp_client *c, int timeout_ms) {
	rd_kafka_message_t *lent[256];
	ssize_t n = rd_kafka_consume_batch_queue(c->q, timeout_ms, lent, 1);
	if (n == 1) {
		ssize_t more = rd_kafka_consume_batch_queue(c->q, 0, lent + 1, 255);
		n += more > 0 ? more : 0;
	}
	int begun = 0;
	for (ssize_t i = 0; i < n; i++) {
		begun |= lent[i]->err == RP_ERR_IN_PROGRESS;
		rd_kafka_message_destroy(lent[i]);
	}
	return begun;
}

// rp_answer is one answer, given on a thread of its own: it may never come back.
typedef struct {
	rd_kafka_t *rk;
	int32_t done;
} rp_answer;

static void *give_answer(void *p) {
	rp_answer *a = p;
	rd_kafka_assign(a->rk, NULL);
	__atomic_store_n(&a->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static rp_answer *answer(rd_kafka_t *rk) {
	rp_answer *a = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	a->rk = rk;
	pthread_t t;
	if (pthread_create(&t, NULL, give_answer, a)) {
		free(a);
		return NULL;
	}
	pthread_detach(t);
	return a;
}

static int answered(rp_answer *a) { return __atomic_load_n(&a->done, __ATOMIC_ACQUIRE); }

// rp_leave leaves the group. What was asked before is answered with "none" while the group still answers; what is asked from
// then on is answered once, when the library has begun to leave and so asks nothing more in the same breath. RP_ERR_IN_PROGRESS:
// the group is left, and a call of the library does not come back: the client must not be freed.
void rp_leave(rp_client *c, int timeout_ms, rp_fault *f) {
	c->closing = RP_REFUSES;
	give_back(c, 0);
	c->closing = RP_LEAVES;
	rp_fault_of(f, rd_kafka_consumer_close_queue(c->rk, c->q));
	if (f->code)
		return;
	rp_fault twice; // that it is leaving already is said when the first order was carried out
	rp_fault_of(&twice, rd_kafka_consumer_close_queue(c->rk, c->q));
	int64_t end = now_ms() + timeout_ms;
	int begun = 0;
	rp_answer *a = NULL;
	while (!rd_kafka_consumer_closed(c->rk)) {
		begun |= give_back(c, 20);
		if (a && answered(a)) {
			free(a);
			a = NULL;
		}
		if (begun && c->asked && !a && (a = answer(c->rk)))
			c->asked = 0;
		if (now_ms() > end) {
			rp_fault_code(f, RP_ERR_TIMED_OUT);
			return;
		}
	}
	for (end = now_ms() + 1000; a && !answered(a) && now_ms() < end;)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	if (a && !answered(a))
		rp_fault_code(f, RP_ERR_IN_PROGRESS);
	else
		free(a);
}
